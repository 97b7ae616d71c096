// Package examples_test runs every program of this module and compares its output with its
// head comment.
package examples_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// limit is the time limit of a program, for a busy machine; they take 10 s.
const limit = time.Minute

func TestExamples_PrintWhatTheySay(t *testing.T) {
	names := examples(t)
	bin := build(t)
	stores := []struct {
		name string
		url  func(*testing.T) string
	}{
		{"default", func(*testing.T) string { return "" }},
		{"directory", func(t *testing.T) string { return "file://" + filepath.ToSlash(t.TempDir()) }},
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }},
	}
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			url := store.url(t)
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					t.Parallel() // they sleep more than they work
					play(t, filepath.Join(bin, name), url, store.url, promised(t, name))
				})
			}
		})
	}
}

func TestExamples_AreListed(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range examples(t) {
		if entry := "[`" + name + "`](" + name + "/main.go)"; !strings.Contains(string(readme), entry) {
			t.Errorf("README.md has no entry %s", entry)
		}
	}
}

// examples returns the directories that have a program.
func examples(t *testing.T) (names []string) {
	t.Helper()
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) == 0 {
		t.Fatalf("%d programs, %v", len(programs), err)
	}
	for _, program := range programs {
		names = append(names, filepath.Dir(program))
	}
	return names
}

// build compiles all programs and returns the directory they are in.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir() + string(filepath.Separator)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// promised returns the text after "Output:" in the head comment of a program.
func promised(t *testing.T, name string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(name, "main.go"), nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(file.Doc.Text(), "\nOutput:\n\n")
	if !ok {
		t.Fatal("the head comment has no output")
	}
	return strings.ReplaceAll(strings.TrimPrefix(block, "\t"), "\n\t", "\n")
}

const (
	// stillness is how long the machine has to stand still for a program to be run again:
	// half of the window in which a waiter must confirm a hand-over.
	stillness = 500 * time.Millisecond
	// tries is how often such a program is run.
	tries = 5
)

// play runs a program that has to print want: on a store, and on another one if the machine
// stood still during the run. A waiter that did not confirm in time has lost its turn, and
// the output is then in another order.
func play(t *testing.T, program, storeURL string, another func(*testing.T) string, want string) {
	t.Helper()
	for n := 1; ; n++ {
		stop, stalls := make(chan struct{}), make(chan time.Duration)
		go func() { stalls <- longestStall(stop) }()
		got, err := output(t, program, storeURL)
		close(stop)
		stall := <-stalls
		switch {
		case err == nil && got == want:
			return
		case stall < stillness || n == tries:
			t.Errorf("%v; printed:\n%s\nwant, by the comment in main.go:\n%s", err, got, want)
			return
		}
		t.Logf("the machine stood still for %v: %v; printed:\n%s", stall, err, got)
		storeURL = another(t)
	}
}

// longestStall returns the longest time for which this process did not run, until stop is
// closed.
func longestStall(stop <-chan struct{}) (most time.Duration) {
	const nap = 10 * time.Millisecond
	for began := time.Now(); ; began = time.Now() {
		select {
		case <-time.After(nap):
			most = max(most, time.Since(began)-nap)
		case <-stop:
			return max(most, time.Since(began)-nap)
		}
	}
}

// output runs a program, which has to succeed without a line on stderr.
func output(t *testing.T, program, storeURL string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	if storeURL != "" {
		cmd.Args = append(cmd.Args, "-store", storeURL)
	}
	cmd.Env = append(os.Environ(), "LEASEHOLD_STORE=", "TMPDIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if stderr.Len() > 0 {
		err = fmt.Errorf("%w, and stderr has: %s", cmp.Or(err, errors.New("it ended well")), &stderr)
	}
	return stdout.String(), err
}
