package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/mutate/source"
)

// Outcomes of a change, in addition to "caught by" a test.
const (
	survived = "SURVIVED"
	unbuilt  = "does not build"
)

// alone builds and runs the nearest tests of a target with one change that NewSchema cannot
// switch by number, until a test fails.
func (t *target) alone(m source.Mutant) (string, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	replaced, err := overlay(dir, map[string]string{m.File: m.Changed()})
	if err != nil {
		return "", err
	}
	for _, program := range t.programs[:min(2, len(t.programs))] {
		pkg, pattern, _ := strings.Cut(program, " ")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		out, err := test(ctx, replaced, "-run="+pattern, pkg)
		late := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
		case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
			return unbuilt, nil
		case late:
			return "caught by the time limit of " + pkg, nil
		default:
			return "caught by the test " + pkg, nil
		}
	}
	return survived, nil
}

// overlay writes changed files to dir, with a file that makes the go command read them instead of
// the originals, and returns the path of that file.
func overlay(dir string, texts map[string]string) (string, error) {
	replace := make(map[string]string)
	for file, text := range texts {
		original, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[original] = changed
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}

// test runs go test.
func test(ctx context.Context, overlay string, args ...string) ([]byte, error) {
	fixed := []string{"test", "-short", "-count=1", "-failfast", "-vet=off", "-timeout=9m", "-overlay=" + overlay}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(fixed, args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}
