package explore_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/explore"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

var (
	deep  = flag.Bool("explore.deep", false, "explore as far as make explore does")
	depth = flag.Int("explore.depth", 0, "explore so many steps, whatever the scenario says")
	trace = flag.String("explore.trace", "", "tell what happens in this trace of the scenario that -run names")
)

// TestExplore_WhateverAFewPartiesDoKeepsThePromises tries everything.
func TestExplore_WhateverAFewPartiesDoKeepsThePromises(t *testing.T) {
	for _, s := range explore.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			if *trace != "" {
				tell(t, s, *trace)
				return
			}
			d := s.Depth - fewer()
			switch {
			case *depth > 0:
				d = *depth
			case *deep:
				d = s.Deep
			}
			begin := time.Now()
			r := s.Explore(d, nil)
			t.Logf("%d states, %d steps, depth %d, in %v", r.States, r.Steps, r.Depth, time.Since(begin).Round(time.Millisecond))
			if r.Wrong != "" {
				t.Error(r.Wrong)
				tell(t, s, r.Trace.String())
			}
		})
	}
}

// fewer is by how many steps less is explored in the short tests, or with the race
// detector.
func fewer() int {
	if testing.Short() || skip.Race {
		return 1
	}
	return 0
}

// tell prints what happens in a trace.
func tell(t *testing.T, s explore.Scenario, text string) {
	t.Helper()
	steps, err := explore.ParseTrace(text)
	if err != nil {
		t.Fatal(err)
	}
	told, _, wrong := s.Tell(steps)
	t.Logf("%s\n%s\ntell it again with -run '%s' -explore.trace=%s", wrong, strings.Join(told, "\n"), t.Name(), text)
}
