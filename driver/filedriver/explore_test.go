package filedriver

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/explore"
)

// TestExplore_DirectoryDoesWhatTheRuleDoes plays all courses of two or three steps of a few
// parties, on a directory whose clock the test sets.
func TestExplore_DirectoryDoesWhatTheRuleDoes(t *testing.T) {
	f := newFake()
	s := open(t, t.TempDir(), f.option())
	s.sweepInterval.Store(math.MaxInt64) // no sweeps in the background
	s.idleFiles.closed = true
	begin := f.elapsed.Load()
	stage := &explore.Stage{
		Store: s, Epoch: s.clock.read(),
		SetClock: func(since time.Duration) { f.elapsed.Store(begin + int64(since)) },
	}
	n, less := 0, 1
	if testing.Short() {
		less = 2
	}
	for _, scenario := range explore.Scenarios {
		var traces []explore.Trace
		scenario.Explore(scenario.Short-less, func(t explore.Trace) { traces = append(traces, slices.Clone(t)) })
		if wrong := scenario.Replay(stage, traces); wrong != "" {
			t.Errorf("%s: %s", scenario.Name, wrong)
		}
		n += len(traces)
	}
	t.Logf("%d traces played", n)
}
