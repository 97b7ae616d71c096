package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
)

// Clients of locks on one machine: calls of a program, or commands.
const (
	callClient    = "call"
	commandClient = "command"
)

// directory measures locks among the processes of one machine, without a
// server: the library compared with flock(2), the command with flock(1).
func directory(ctx context.Context, b *bench) *table {
	dir := b.TempDir()
	tool := buildCommand(ctx, dir)
	t := newTable("Directory: one lock and unlock", column{Name: "free: p50 µs"}, column{Name: "× flock", Digits: 2, by: bare})
	all := b.pick(flockCall(dir), leaseholdDirectory(dir), flockCommand(dir), leaseholdCommand(tool, dir))
	return b.compare(t, all, b.crowds, func(_ int, c contender, key string) []float64 {
		took := b.pairs(ctx, b.open(c, halfMinute), key, nil)
		return []float64{median(each(took, micros))}
	})
}

// flockCall is flock(2), on a file that is opened for each lock.
func flockCall(dir string) contender {
	return contender{name: "flock(2)", client: callClient, kind: limit, open: func(string, settings) process {
		return &functions{lock: func(_ context.Context, key string) (held, error) {
			f, err := os.OpenFile(filepath.Join(dir, key), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
				err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			}
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return releaser(f.Close), nil
		}}
	}}
}

func leaseholdDirectory(dir string) contender {
	return leaseholdOn("Leasehold, directory", callClient, func(string) (driver.Driver, error) {
		return filedriver.Open(filepath.Join(dir, "library"))
	})
}

// flockCommand is flock(1), from its start to its end.
func flockCommand(dir string) contender {
	return commandContender("flock(1)", limit, func(key string) []string {
		return []string{"flock", filepath.Join(dir, key+".command")}
	})
}

func leaseholdCommand(tool, dir string) contender {
	return commandContender("Leasehold, run", ours, func(key string) []string {
		return []string{tool, "run", "-q", "--store", "file://" + filepath.Join(dir, "command"), key, "--"}
	})
}

// commandContender is a command that runs another command while it has the lock. The
// inner command reports that it runs, and ends when its input ends.
func commandContender(name string, k kind, argv func(key string) []string) contender {
	return contender{name: name, client: commandClient, kind: k, open: func(string, settings) process {
		return &functions{lock: func(ctx context.Context, key string) (held, error) {
			args := append(argv(key), "sh", "-c", "echo; read line || :")
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				return nil, err
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				return nil, err
			}
			if err := cmd.Start(); err != nil {
				return nil, err
			}
			if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
				return nil, errors.Join(err, cmd.Wait())
			}
			return releaser(func() error { return errors.Join(stdin.Close(), cmd.Wait()) }), nil
		}}
	}}
}

// buildCommand builds the command from the source next to this module. It returns a copy of the
// linker's output, which starts faster; installed commands are copies, too.
func buildCommand(ctx context.Context, dir string) string {
	_, here, _, _ := runtime.Caller(0)
	tool := filepath.Join(dir, "leasehold")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Dir(filepath.Dir(here)), "-o", tool, "./cmd/leasehold")
	build.Env = append(os.Environ(), "GOWORK=auto") // the workspace there
	if out, err := build.CombinedOutput(); err != nil {
		check(fmt.Errorf("build the command: %w: %s", err, out))
	}
	check(os.WriteFile(tool+"-copy", need(os.ReadFile(tool)), 0o755)) //nolint:gosec // a command
	return tool + "-copy"
}
