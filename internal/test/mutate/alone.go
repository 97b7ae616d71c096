package main

import (
	"context"
	"encoding/json"
	"errors"
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
	replaced, err := overlay(m, dir)
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

// overlay writes the changed file, and an overlay file that replaces the original
// by it.
func overlay(m source.Mutant, dir string) (string, error) {
	original, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, []byte(m.Changed()), 0o644), os.WriteFile(overlay, text, 0o644))
}

// test runs go test.
func test(ctx context.Context, overlay string, args ...string) ([]byte, error) {
	fixed := []string{"test", "-short", "-count=1", "-failfast", "-vet=off", "-timeout=9m", "-overlay=" + overlay}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(fixed, args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}
