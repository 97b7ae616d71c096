// Package examples_test runs every program of this module and compares what it
// prints with what its head comment says.
package examples_test

import (
	"bytes"
	"context"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// limit is what a program may take on a machine that is busy; they take 6 s.
const limit = 20 * time.Second

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
					want := promised(t, name)
					if got := output(t, filepath.Join(bin, name), url); got != want {
						t.Errorf("printed:\n%s\nwant, by the comment in %s/main.go:\n%s", got, name, want)
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

// promised returns what follows "Output:" in the head comment of a program.
func promised(t *testing.T, name string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(name, "main.go"), nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(file.Doc.Text(), "\nOutput:\n\n")
	if !ok {
		t.Fatal("the head comment says no output")
	}
	return strings.ReplaceAll(strings.TrimPrefix(block, "\t"), "\n\t", "\n")
}

// output runs a program, which has to succeed and to say nothing of errors.
func output(t *testing.T, program, storeURL string) string {
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
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	return stdout.String()
}
