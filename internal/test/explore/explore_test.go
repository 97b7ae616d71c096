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
	depth = flag.Int("explore.depth", 0, "explore this number of steps in every scenario")
	trace = flag.String("explore.trace", "", "print the steps of this trace of the scenario that -run names")
)

// TestExplore_EveryOrderKeepsThePromises tries everything.
func TestExplore_EveryOrderKeepsThePromises(t *testing.T) {
	for _, s := range explore.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			if *trace != "" {
				show(t, s, *trace)
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
				show(t, s, r.Trace.String())
			}
		})
	}
}

// fewer returns by how many steps the depth is smaller in the short tests, or with the race
// detector.
func fewer() int {
	if testing.Short() || skip.Race {
		return 1
	}
	return 0
}

// show prints the steps of a trace.
func show(t *testing.T, s explore.Scenario, text string) {
	t.Helper()
	steps, err := explore.ParseTrace(text)
	if err != nil {
		t.Fatal(err)
	}
	lines, _, wrong := s.Describe(steps)
	t.Logf("%s\n%s\nplay it again with -run '%s' -explore.trace=%s", wrong, strings.Join(lines, "\n"), t.Name(), text)
}
