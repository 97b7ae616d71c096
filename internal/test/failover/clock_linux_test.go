package failover_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// startTimeless starts a server whose wall clock stands still.
func startTimeless(t *testing.T) *redistest.Server {
	t.Helper()
	s, clock := redistest.StartWithClock(t)
	clock.Hold(time.Now())
	return s
}

// timeless returns the environment of servers whose wall clock stands still. On such servers no
// lease and no ticket expires, even if the test and the machine are slow.
func timeless(t *testing.T) []string {
	t.Helper()
	clock, env := redistest.NewClock(t, t.TempDir())
	clock.Hold(time.Now())
	return env
}
