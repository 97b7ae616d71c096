package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

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
func directory(ctx context.Context, b *bench) (*table, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-dir-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tool, err := buildCommand(ctx, dir)
	if err != nil {
		return nil, err
	}
	const waiting = 20
	all := b.pick([]contender{flockCall(dir), leaseholdDirectory(dir), flockCommand(dir), leaseholdCommand(tool, dir)})
	p50, total, overtook := grid(all), grid(all), grid(all)
	for round := range b.crowds {
		for i, c := range all {
			key := fmt.Sprintf("directory-%d-%d", round, i)
			us, err := freeOnce(ctx, b, c, key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			p50[i] = append(p50[i], us)
			r, err := drainOnce(ctx, b, c, waiting, key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			took := millis(r.took)
			if r.hung > 0 {
				fmt.Fprintf(os.Stderr, "bench: %s: %d of %d were not served in %v\n", c.name, r.hung, waiting, b.patience)
				took = math.NaN()
			}
			total[i], overtook[i] = append(total[i], took), append(overtook[i], 100*r.overtook)
		}
	}
	t := newTable(fmt.Sprintf("Directory: one lock and unlock; %d waiters, hold 1 ms, served once each", waiting),
		column{Name: "free: p50 µs", Digits: 0}, column{Name: "× flock", Digits: 2},
		column{Name: "drain: total ms", Digits: 1}, column{Name: "× flock's", Digits: 2}, column{Name: "overtook, %", Digits: 0, None: true})
	for i, c := range all {
		t.add(c, p50[i], ratios(p50[i], bare(all, p50, c)), total[i], ratios(total[i], bare(all, total, c)), overtook[i])
	}
	return t, nil
}

// freeOnce returns the median of free pairs of one round, in µs.
func freeOnce(ctx context.Context, b *bench, c contender, key string) (float64, error) {
	p, err := b.open(c, settings{ttl: 30 * time.Second})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	took, err := b.pairs(ctx, p, key, nil)
	return median(each(took, micros)), err
}

// alone is a way to lock in which processes share only files.
type alone func(ctx context.Context, key string) (held, error)

func (lock alone) Lock(ctx context.Context, key string) (held, error) { return lock(ctx, key) }

func (alone) Crash(context.Context, string, time.Duration) error { return errUnfit }
func (alone) Close() error                                       { return nil }

// flockCall is flock(2), on a file that is opened for each lock.
func flockCall(dir string) contender {
	return contender{name: "flock(2)", client: callClient, kind: limit, open: func(string, settings) (process, error) {
		return alone(func(_ context.Context, key string) (held, error) {
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
		}), nil
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

// startup is time enough for a command to start on a machine that is busy.
const startup = 50 * time.Millisecond

// commandContender is a command that runs another command while it has the lock. The
// inner command reports that it runs, and ends when its input ends.
func commandContender(name string, k kind, argv func(key string) []string) contender {
	return contender{name: name, client: commandClient, kind: k, arrival: startup, open: func(string, settings) (process, error) {
		return alone(func(ctx context.Context, key string) (held, error) {
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
		}), nil
	}}
}

// buildCommand builds the command from the source next to this module. It returns a copy of the
// linker's output, which starts faster; installed commands are copies, too.
func buildCommand(ctx context.Context, dir string) (string, error) {
	_, here, _, _ := runtime.Caller(0)
	tool := filepath.Join(dir, "leasehold")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Dir(filepath.Dir(here)), "-o", tool, "./cmd/leasehold")
	build.Env = append(os.Environ(), "GOWORK=auto") // the workspace there
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w: %s", err, out)
	}
	binary, err := os.ReadFile(tool)
	if err != nil {
		return "", err
	}
	return tool + "-copy", os.WriteFile(tool+"-copy", binary, 0o755) //nolint:gosec // a command
}
