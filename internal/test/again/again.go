// Package again repeats what failed because the machine stood still. It is for outcomes that depend on
// the time in which a process goes on.
package again

import (
	"testing"
	"time"
)

// tries is how often f is called at most.
const tries = 5

// IfStalled calls f, and again if f fails and the process did not run for some time of at least
// stillness in the meantime. It returns the error of the last call.
func IfStalled(t *testing.T, stillness time.Duration, f func() error) error {
	t.Helper()
	for n := 1; ; n++ {
		stop, stalls := make(chan struct{}), make(chan time.Duration)
		go func() { stalls <- longest(stop) }()
		err := f()
		close(stop)
		stall := <-stalls
		if err == nil || stall < stillness || n == tries {
			return err
		}
		t.Logf("the machine stood still for %v: %v", stall, err)
	}
}

// longest returns the longest time for which this process did not run, until stop is closed.
func longest(stop <-chan struct{}) (most time.Duration) {
	const nap = 10 * time.Millisecond
	for began := time.Now(); ; began = time.Now() {
		select {
		case <-time.After(nap):
			most = max(most, time.Since(began)-nap)
		case <-stop:
			return max(most, time.Since(began)-nap)
		}
	}
}
