// Package live marks tests that need real servers, processes or clocks, and separates their
// promises from their pace. `make live` runs them one package at a time, without the race
// detector.
package live

import (
	"os"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/skip"
)

const (
	// Env is the environment variable that makes live tests run: 1 runs them under go test,
	// and Runner is the value that package run sets.
	Env    = "LEASEHOLD_LIVE"
	Runner = "runner"
	// LateMark begins the line of a missed time bound in the output of a test.
	LateMark = "LATE: "
)

// Test marks a test as live. It is the first statement of the test: package run finds the
// tests by it.
func Test(tb testing.TB) {
	tb.Helper()
	skip.Unless(tb, os.Getenv(Env) != "", "make live, or "+Env+"=1")
}

// Late reports a missed time bound of a live test: pace, not a broken promise. Package run
// repeats the test alone, three times, and reports it as flaky if all three are in time.
// Without package run the test fails.
func Late(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv(Env) == Runner {
		tb.Logf(LateMark+format, args...)
		return
	}
	tb.Errorf("late: "+format, args...)
}
