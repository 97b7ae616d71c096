package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/mutate/source"
)

// What becomes of a change, beside "caught by" a test run.
const (
	survived = "SURVIVED"
	unbuilt  = "does not build"
)

// baseline runs the tests without a change, which have to pass, and returns how long
// each run may take with one.
func (t *target) baseline() (bounds []time.Duration, err error) {
	for _, args := range t.tests {
		start := time.Now()
		if out, err := test(context.Background(), "", args); err != nil {
			return nil, fmt.Errorf("%s fails without a change: %w\n%s", strings.Join(args, " "), err, out)
		}
		bounds = append(bounds, 4*time.Since(start)+time.Minute)
	}
	return bounds, nil
}

// judge runs the tests with a change, until one notices.
func (t *target) judge(m source.Mutant, bounds []time.Duration) (string, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	replaced, err := overlay(m, dir)
	if err != nil {
		return "", err
	}
	for i, args := range t.tests {
		ctx, cancel := context.WithTimeout(context.Background(), bounds[i])
		out, err := test(ctx, replaced, args)
		late := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
		case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
			return unbuilt, nil
		case late:
			return "caught by the time limit of " + strings.Join(args, " "), nil
		default:
			return "caught by " + strings.Join(args, " "), nil
		}
	}
	return survived, nil
}

// overlay writes the changed file, and the overlay that puts it into its original's
// place.
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
func test(ctx context.Context, overlay string, args []string) ([]byte, error) {
	fixed := []string{"test", "-short", "-count=1", "-failfast", "-vet=off", "-timeout=10m", "-overlay=" + overlay}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(fixed, args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}
