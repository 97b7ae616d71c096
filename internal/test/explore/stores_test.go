//go:build linux

package explore_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/explore"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
)

// stores play the traces. A new store joins by a line.
var stores = []struct {
	name string
	// less is by how many steps the depth is smaller with -short.
	less int
	play func(t *testing.T, play func(*testing.T, *explore.Stage))
}{
	{"memory", 0, inBubble(func() store { return memdriver.New() })},
	{"table", 0, inBubble(func() store { return roomdriver.New(teststore.NewTable(time.Now)) })},
	{"go-redis", 1, onRedis(func(s *redistest.Server) (store, error) {
		return redisdriver.New(s.Client(), redisdriver.WithTimeout(time.Minute))
	})},
	{"rueidis", 1, onRedis(func(s *redistest.Server) (store, error) {
		return rueidisdriver.Open("redis://"+s.Addr(), rueidisdriver.WithTimeout(time.Minute))
	})},
}

type store interface {
	driver.Driver
	driver.Watcher
	driver.Inspector
	driver.Breaker
}

// inBubble plays on a store with the clock of its bubble.
func inBubble(open func() store) func(*testing.T, func(*testing.T, *explore.Stage)) {
	return func(t *testing.T, play func(*testing.T, *explore.Stage)) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			d := open()
			defer d.Close()
			play(t, &explore.Stage{
				Store: d, Epoch: begin.UnixMicro(),
				SetClock: func(since time.Duration) { time.Sleep(since - time.Since(begin)) },
			})
		})
	}
}

// onRedis plays on a server with a clock that stands still until it is set.
func onRedis(open func(*redistest.Server) (store, error)) func(*testing.T, func(*testing.T, *explore.Stage)) {
	return func(t *testing.T, play func(*testing.T, *explore.Stage)) {
		server, clock := redistest.StartWithClock(t)
		begin := time.Now().Truncate(time.Millisecond)
		clock.Hold(begin)
		d, err := open(server)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		play(t, &explore.Stage{
			Store: d, Epoch: begin.UnixMicro(), Callers: 16, Lingers: true,
			SetClock: func(since time.Duration) { clock.Hold(begin.Add(since)) },
		})
	}
}

// TestExplore_StoresDoWhatTheRuleDoes plays the explored traces on every store: each step of
// each state, up to a smaller depth.
func TestExplore_StoresDoWhatTheRuleDoes(t *testing.T) {
	for _, st := range stores {
		t.Run(st.name, func(t *testing.T) {
			begin, n, lingered := time.Now(), 0, 0
			st.play(t, func(t *testing.T, stage *explore.Stage) {
				for _, s := range explore.Scenarios {
					d := s.Short
					if n := fewer(); n > 0 {
						d -= st.less + n
					}
					if *deep {
						d++
					}
					traces := every(s, d)
					n += len(traces)
					if wrong := s.Replay(stage, traces); wrong != "" {
						t.Errorf("%s: %s", s.Name, wrong)
					}
				}
				lingered = stage.Lingered
			})
			t.Logf("%d traces in %v, %d of them up to the millisecond of an end", n, time.Since(begin), lingered)
		})
	}
}

// every returns the ways by which each step of each state was tried.
func every(s explore.Scenario, depth int) (traces []explore.Trace) {
	s.Explore(depth, func(t explore.Trace) { traces = append(traces, slices.Clone(t)) })
	slices.SortFunc(traces, func(a, b explore.Trace) int { return slices.Compare(a, b) })
	return traces
}
