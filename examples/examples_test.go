// Package examples_test runs every program of this module and compares its output with its
// head comment.
package examples_test

import (
	"bytes"
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

	"github.com/leasehold-go/leasehold/internal/test/again"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// limit is the time limit of a program, for a busy machine; they take 10 s.
const limit = time.Minute

// stillness is how long the machine has to stand still for a program to be run again:
// half of the window in which a waiter must confirm a hand-over. A waiter that did not confirm in
// time has lost its turn, and the output is then in another order.
const stillness = 500 * time.Millisecond

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
					at := url
					err := again.IfStalled(t, stillness, func() error {
						err := play(t, filepath.Join(bin, name), at, promised(t, name))
						if err != nil {
							at = store.url(t) // the store may still have locks of the program
						}
						return err
					})
					if err != nil {
						t.Error(err)
					}
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

// play runs a program, which has to succeed and to print want, without a line on stderr.
func play(t *testing.T, program, storeURL, want string) error {
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
	if got := stdout.String(); err != nil || stderr.Len() > 0 || got != want {
		err = errors.Join(err, fmt.Errorf("printed:\n%s\nwant, by the comment in main.go:\n%s\nstderr has: %s", got, want, &stderr))
	}
	return err
}
