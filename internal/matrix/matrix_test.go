package matrix_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func hurried(all []disturbance) []disturbance {
	for i := range all {
		all[i].hurry = true
	}
	return all
}

func long(all []disturbance) []disturbance {
	for i := range all {
		all[i].long = true
	}
	return all
}

// fault is a column of the table.
type fault struct {
	name  string
	plays []disturbance
	// where says on which worlds it is played; nil is on all.
	where []string
}

func each(f fate, lasts time.Duration) (all []disturbance) {
	for at := range 2 {
		all = append(all, disturbance{fate: f, at: at, lasts: lasts})
	}
	return all
}

var faults = []fault{
	{name: "reply lost", plays: append(each(unanswered, 0), long(each(unanswered, 12*time.Second))...)},
	{name: "request lost", plays: each(lost, 0)},
	{name: "request late", plays: append(each(late, 0), hurried(each(late, 0))...)},
	{name: "request doubled", plays: append(each(doubled, 0), hurried(each(doubled, 0))...)},
	{name: "answer slow", plays: append(each(slow, 0), each(stuck, 0)...)},
	{name: "context ended before", plays: []disturbance{{before: true}}},
	{name: "context ended during", plays: []disturbance{{during: true, fate: slow}, {during: true, fate: stuck}, {during: true, fate: frozen, lasts: 7 * time.Second}, {during: true, fate: slow, at: 1}, {during: true, fate: unanswered, lasts: 2 * time.Second, long: true}, {during: true, fate: stuck, long: true}}},
	{name: "context ended after", plays: []disturbance{{after: true}}},
	{name: "store frozen", plays: append(each(frozen, 2*time.Second), each(frozen, 7*time.Second)...)},
	{name: "store forgets", plays: each(forgets, 0)},
	{name: "store comes back old", plays: each(goesBack, 0), where: []string{"store", "service", "routes"}},
	{name: "failover", plays: each(failsOver, 0), where: []string{"store", "service", "routes"}},
	{name: "store refuses", plays: each(refused, 2*time.Second)},
	{name: "no descriptors", plays: each(noDial, 2*time.Second)},
	{name: "proxy answers", plays: append(each(gateway, 1500*time.Millisecond), append(each(gatewayAfter, 0), long(each(gatewayAfter, 12*time.Second))...)...), where: []string{"service", "routes"}},
	{name: "starved", plays: each(starved, 5*time.Second)},
	{name: "clock edge", plays: append(each(onEdge, 0), each(beforeEdge, 0)...)},
	{name: "two faults", plays: []disturbance{
		{fate: unanswered, then: refused, lasts2: 2 * time.Second}, {fate: late, then: refused, lasts2: 2 * time.Second},
		{fate: unanswered, then: noDial, lasts2: 2 * time.Second, long: true}, {fate: unanswered, then: forgets}, {fate: lost, then: failsOver},
		{fate: refused, then: late}, {fate: late, then: unanswered}, {fate: stuck, then: lost}, {fate: forgets, away: true}, {fate: slow, away: true}, {fate: only503, lasts: 12 * time.Second, long: true},
	}},
	{name: "process stopped"},
	{name: "closed meanwhile", plays: []disturbance{{closes: true, fate: slow}, {closes: true, fate: stuck}, {closes: true, fate: lost, lasts: 2 * time.Second}}},
}

var seed = flag.Uint64("matrix.seed", 1, "which plays are drawn by lot with -short, and what happens in the days of TestLong")

// lot draws the plays of a short run: with the race detector, which makes them some ten
// times dearer, fewer.
func lot(t *testing.T, w string) func() bool {
	one := 1
	switch {
	case testing.Short() && slower > 0:
		one = 32
	case testing.Short() && w != "store":
		one = 8
	}
	if w == "redis quorum" { // an interpreter at each of three nodes takes its time
		one *= 4
	}
	if one > 1 {
		t.Logf("%s: one play of %d, by lot: -matrix.seed=%d", w, one, *seed)
	}
	rng := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // to be repeated
	return func() bool { return rng.IntN(one) == 0 }
}

// setting is a world, and the entries that are called in it.
type setting struct {
	name    string
	letter  string
	like    string // which of the settings it is like, in what cannot happen there
	open    func(*testing.T) *world
	entries []*entry
}

func settings() []setting {
	library := append(locks(), others()...)
	return []setting{
		{"store", "s", "store", onStore, library},
		{"service", "h", "service", onService, library},
		{"quorum", "q", "quorum", onQuorum, library},
		{"redis", "l", "store", onRedis, library},
		{"redis quorum", "m", "quorum", onRedisQuorum, library},
		{"routes", "r", "routes", onService, routes()},
		{"behind", "b", "routes", behindService, routes()},
	}
}

// plays reports whether an entry is called under a fault in a setting.
func (s *setting) plays(e *entry, f *fault) bool {
	route := s.like == "routes"
	switch {
	case e.notOn[s.like] != "", f.name == "closed meanwhile" && route, f.name == "proxy answers" && s.name == "behind", len(f.plays) == 0:
		return false
	}
	return f.where == nil || slices.Contains(f.where, s.like)
}

// TestMatrix_EveryEntryUnderEveryFault calls every entry of the library, on a store, by
// way of a service of two replicas and on a quorum, and every route of the service, under
// every fault, and judges what the caller was told.
func TestMatrix_EveryEntryUnderEveryFault(t *testing.T) {
	for _, s := range settings() {
		begin, plays, drawn := time.Now(), 0, lot(t, s.name)
		for _, e := range s.entries {
			for _, f := range faults {
				if !s.plays(e, &f) {
					continue
				}
				t.Run(s.name+"/"+e.name()+"/"+f.name, func(t *testing.T) {
					for i, d := range f.plays {
						if !drawn() {
							continue
						}
						plays++
						if wrongs := play(t, s.open, e, d); len(wrongs) > 0 {
							t.Errorf("play %d %+v:\n%s", i, d, strings.Join(wrongs, "\n"))
						}
					}
				})
			}
		}
		t.Logf("%s: %d plays in %v", s.name, plays, time.Since(begin).Round(time.Millisecond))
	}
}
