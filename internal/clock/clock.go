// Package clock measures elapsed time for leases.
//
// Go's monotonic clock stands still on some systems while the machine is
// suspended, but a lease on a server does not. Now therefore adds the time
// that the machine has been suspended since the process started.
package clock

import (
	"sync/atomic"
	"time"
)

// jitter bounds the difference between readings of two clocks without a suspension.
const jitter = 10 * time.Millisecond

var (
	start   = time.Now()
	atStart = suspended()

	asleep atomic.Int64 // ns suspended since start, as last looked up
	gap    atomic.Int64 // ns between wall and monotonic progress at that time
)

// system asks the system for the time spent suspended. Tests replace it.
var system = suspended

// Advance makes the clock jump ahead without any timer running, as it does for a
// machine that was suspended and a process that was stopped. It is for tests.
func Advance(d time.Duration) { skipped.Add(int64(d)) }

var skipped atomic.Int64

// Now returns the current time with a monotonic reading that includes
// suspension. Compare and subtract its results only with one another.
func Now() time.Time {
	now := time.Now()
	// A suspension shows as wall time that the monotonic clock did not see.
	// So does a step of the wall clock: the system is asked which it was.
	apart := now.UnixNano() - start.UnixNano() - int64(now.Sub(start))
	if moved := apart - gap.Load(); moved > int64(jitter) || moved < -int64(jitter) {
		if d := system() - atStart; d > jitter {
			raise(&asleep, int64(d))
		}
		gap.Store(apart)
	}
	if ahead := Ahead(); ahead != 0 {
		return now.Add(ahead)
	}
	return now
}

// Local converts a reading of this clock to one of [time.Now], for use outside the package.
func Local(t time.Time) time.Time { return t.Add(-Ahead()) }

// Ahead returns by how much this clock was ahead of the monotonic one, by which timers run, at
// the last Now.
func Ahead() time.Duration { return time.Duration(asleep.Load() + skipped.Load()) }

// raise makes v at least n: two readings of the system's clocks a moment apart
// differ a little, and time must not go back by that.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old; old = v.Load() {
		if v.CompareAndSwap(old, n) {
			return
		}
	}
}
