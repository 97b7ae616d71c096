// Package skip has the only reasons for which a test may be skipped: its level, the race
// detector, and the platform. A linter forbids every other skip, because a test that is
// skipped when the machine is slow also hides a broken promise.
package skip

import "testing"

// Nightly skips a test that make test leaves to make live or make nightly, because of why:
// make test runs with -short.
func Nightly(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("not with -short: " + why)
	}
}

// Racing skips a test in a build with the race detector, because of why. Such a test belongs
// to test-counts or test-large in the Makefile, which run without the race detector.
func Racing(tb testing.TB, why string) {
	tb.Helper()
	if Race {
		tb.Skip("not with the race detector: " + why)
	}
}

// Unless skips a test on a platform, a store or an input without a property that the test
// needs. A server that is missing is a failure instead.
func Unless(tb testing.TB, has bool, need string) {
	tb.Helper()
	if !has {
		tb.Skip("needs " + need)
	}
}
