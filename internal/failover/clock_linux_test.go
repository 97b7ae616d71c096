package failover_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// startTimeless starts a server whose wall clock stands still. On such a server no lease
// and no ticket expires, however long the test and the machine take.
func startTimeless(t *testing.T) *redistest.Server {
	t.Helper()
	s, clock := redistest.StartWithClock(t)
	clock.Hold(time.Now())
	return s
}
