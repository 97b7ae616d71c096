package redistest

import (
	"testing"
	"time"
)

// StartHeld is [Start] for a server with a wall clock that stands still until advance moves it.
// Advance must not be called at the same time by several goroutines.
func StartHeld(tb testing.TB, args ...string) (s *Server, advance func(d time.Duration)) {
	tb.Helper()
	s, clock := StartWithClock(tb, args...)
	return s, clock.Held()
}

// Held stops the clock at the present, and returns a function that moves it.
func (c *Clock) Held() (advance func(d time.Duration)) {
	c.tb.Helper()
	at := time.Now().Truncate(time.Millisecond)
	c.Hold(at)
	return func(d time.Duration) {
		at = at.Add(d)
		c.Hold(at)
	}
}

// HeldClock returns the environment of servers with a wall clock that stands still. On such servers no
// lease and no ticket expires, even if the test and the machine are slow.
func HeldClock(tb testing.TB) (env []string) {
	tb.Helper()
	clock, env := NewClock(tb, tb.TempDir())
	clock.Hold(time.Now())
	return env
}
