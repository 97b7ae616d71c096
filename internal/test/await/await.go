// Package await waits in tests for a state that causes no event.
package await

import (
	"testing"
	"time"
)

// Until repeats ok until it returns true. After a minute it fails the test and prints what.
func Until(tb testing.TB, ok func() bool, what ...any) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal(append([]any{"not within a minute"}, what...)...)
		}
	}
}
