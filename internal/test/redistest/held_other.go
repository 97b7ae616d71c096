//go:build !linux

package redistest

import (
	"testing"
	"time"
)

// StartHeld is [Start], and returns no advance: on this system no clock can be held.
func StartHeld(tb testing.TB, args ...string) (s *Server, advance func(d time.Duration)) {
	tb.Helper()
	return Start(tb, args...), nil
}

// HeldClock returns no variables: on this system no clock can be held.
func HeldClock(testing.TB) (env []string) { return nil }
