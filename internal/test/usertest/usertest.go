// Package usertest uses a module of this repository as its users do: the program of its
// README is built in a module of its own, and run.
package usertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/ask"
)

// library is the module that the integrations require.
const library = "github.com/leasehold-go/leasehold"

// limit is for a machine that is busy: a build takes seconds, a program one or two.
const limit = 5 * time.Minute

// Run builds the first program of README.md in a new module, which requires the module of
// the working directory and the library, and starts copies of it on one
// directory store, their only argument. When one of them has printed a line that contains
// want, Run interrupts all of them, and they have to end without an error, or by the
// interrupt: a copy may not have begun to listen for it.
func Run(t *testing.T, copies int, want string) {
	t.Helper()
	program := build(t)
	store := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	found := make(chan struct{})
	var once sync.Once
	var running sync.WaitGroup
	for i := range copies {
		cmd := exec.CommandContext(ctx, program, store)
		out, in, err := os.Pipe()
		ask.NoError(t, err)
		cmd.Stdout, cmd.Stderr = in, in
		ask.NoError(t, cmd.Start())
		in.Close()
		printed := make(chan string, 1)
		go func() { printed <- read(out, want, func() { once.Do(func() { close(found) }) }) }()
		running.Go(func() {
			select {
			case <-found:
				_ = cmd.Process.Signal(os.Interrupt) // it may have ended
			case <-ctx.Done():
			}
			text := <-printed
			if err := cmd.Wait(); err != nil && err.Error() != "signal: interrupt" {
				t.Errorf("copy %d: %v; it printed:\n%s", i, err, text)
			}
		})
	}
	running.Wait()
	select {
	case <-found:
	default:
		t.Errorf("no copy printed %q", want)
	}
}

// read returns the output, and calls tell when a line contains want.
func read(from io.ReadCloser, want string, tell func()) string {
	defer from.Close()
	var all strings.Builder
	for lines := bufio.NewScanner(from); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), want) {
			tell()
		}
	}
	return all.String()
}

// build returns the path of the program.
func build(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	ask.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	ask.NoError(t, err)
	_, source, ok := strings.Cut(string(readme), "```go\npackage main\n")
	source, _, closed := strings.Cut(source, "\n```")
	if !ok || !closed {
		t.Fatal("README.md has no program")
	}
	dir := t.TempDir()
	ask.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"+source+"\n"), 0o600))
	module := strings.TrimSpace(run(t, here, "list", "-m"))
	root := strings.TrimSpace(run(t, here, "list", "-m", "-f", "{{.Dir}}", library))
	run(t, dir, "mod", "init", "example.com/user")
	run(t, dir, "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+here, "-replace="+library+"="+root)
	run(t, dir, "build", "-mod=mod", "-o", "program", ".")
	return filepath.Join(dir, "program")
}

// run runs the go command outside any workspace. It accepts the sums of the modules in the cache.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOSUMDB=off")
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, problem.String())
	}
	return string(out)
}
