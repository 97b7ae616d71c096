package matrix_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/server"
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
	// where are the worlds on which it is played; nil means all.
	where []string
}

// absence is how long a store is away in faults by which no lease may be lost: half a lease.
const absence = ttl / 2

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
	{name: "store away later", plays: []disturbance{{fate: frozen, lasts: absence, later: true}, {fate: lost, lasts: absence, later: true}, {fate: refused, lasts: absence, later: true}}},
	{name: "store forgets", plays: each(forgets, 0)},
	{name: "store comes back old", plays: append(each(goesBack, 0), disturbance{fate: goesBack, then: unanswered}, disturbance{fate: goesBack, at: 1, then: unanswered}, disturbance{fate: wentBack, at: 2}, disturbance{fate: wentBack, at: 2, then: unanswered}), where: []string{"store", "service", "routes"}},
	{name: "failover", plays: each(failsOver, 0), where: []string{"store", "service", "routes"}},
	{name: "store refuses", plays: append(each(refused, 2*time.Second), long(each(refused, 12*time.Second))...)},
	{name: "no descriptors", plays: append(each(noDial, 2*time.Second), disturbance{fate: noDial, at: 1, lasts: 12 * time.Second})},
	{name: "proxy answers", plays: append(each(gateway, 1500*time.Millisecond), append(each(gatewayAfter, 0), long(each(gatewayAfter, 12*time.Second))...)...), where: []string{"service", "routes"}},
	{name: "starved", plays: each(starved, 5*time.Second)},
	{name: "clock edge", plays: append(each(onEdge, 0), each(beforeEdge, 0)...)},
	{name: "two faults", plays: []disturbance{
		{fate: unanswered, then: refused, lasts2: 2 * time.Second}, {fate: late, then: refused, lasts2: 2 * time.Second},
		{fate: unanswered, then: noDial, lasts2: 2 * time.Second, long: true}, {fate: unanswered, then: forgets}, {fate: lost, then: failsOver},
		{fate: refused, then: late}, {fate: late, then: unanswered}, {fate: stuck, then: lost}, {fate: forgets, away: true}, {fate: slow, away: true}, {fate: lost, lasts: 12 * time.Second, away: true, long: true}, {fate: only503, lasts: 12 * time.Second, long: true},
	}},
	{name: "process stopped"},
	{name: "closed meanwhile", plays: []disturbance{{closes: true, fate: slow}, {closes: true, fate: stuck}, {closes: true, fate: lost, lasts: 2 * time.Second}}},
}

var seed = flag.Uint64("matrix.seed", 1, "the seed of the sample of plays with -short")

// lot selects the plays of a short run: fewer with the race detector, which makes them about ten
// times slower.
func lot(t *testing.T, w string) func() bool {
	one := 1
	switch {
	case testing.Short() && skip.Race:
		one = 128
	case testing.Short() && w != "store":
		one = 16
	}
	switch {
	case !testing.Short():
	case w == "redis quorum": // each of three nodes runs an interpreter
		one *= 4
	case w == "deaf service", strings.HasPrefix(w, "redis"): // differ from service and store in a part
		one *= 2
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
	like    string // another setting with the same impossible cells
	open    func(*testing.T) *world
	entries []*entry
}

func settings() []setting {
	library, page := append(locks(), others()...), server.WithPage(server.PageFull)
	return []setting{
		{"store", "store", onStore, library},
		{"service", "service", serviceOn(tables, false), library},
		{"deaf service", "service", onDeafService, library},
		{"quorum", "quorum", onQuorum, library},
		{"redis", "store", onRedis, library},
		{"redis quorum", "quorum", onRedisQuorum, library},
		{"routes", "routes", serviceOn(tables, false), routes()},
		{"behind", "routes", serviceOn(tables, true), routes()},
		{"quorum behind", "quorum routes", onServiceOnQuorum, routes()},
		{"redis routes", "routes", serviceOn(keyspaces, false), routes()},
		{"redis behind", "routes", serviceOn(keyspaces, true), routes()},
		{"page", "routes", serviceOn(tables, false, page), pages()},
		{"page behind", "routes", serviceOn(tables, true, page), pages()},
	}
}

// plays reports whether an entry is called under a fault in a setting.
func (s *setting) plays(e *entry, f *fault) bool {
	switch {
	case slices.Contains(e.notOn, s.like), slices.Contains(e.notOn, strings.TrimPrefix(s.name, "redis ")), e.ignores(f), f.name == "proxy answers" && strings.HasSuffix(s.name, "behind"), len(f.plays) == 0:
		return false
	}
	return f.where == nil || slices.Contains(f.where, s.like)
}

// cell plays the drawn plays of a cell, and returns their number. It fails if it played the whole
// cell and no play met the fault: such a cell proves no property.
func (s *setting) cell(t *testing.T, e *entry, f *fault, drawn func() bool) (plays int) {
	all, met := true, false
	for i, d := range f.plays {
		if e.silent(d) {
			continue
		}
		if !drawn() {
			all = false
			continue
		}
		plays++
		wrongs, meets := play(t, s.open, e, d)
		if len(wrongs) > 0 {
			t.Errorf("play %d %+v:\n%s", i, d, strings.Join(wrongs, "\n"))
		}
		met = met || meets
	}
	if all && !met {
		t.Errorf("not one of %d plays has met the fault", plays)
	}
	return plays
}

// TestMatrix_EveryEntryUnderEveryFault calls every entry of the library, on a store, by way of a
// service of two replicas and on a quorum, and every route of the service, under every fault, and
// checks the results. Each cell has a play that meets its fault.
func TestMatrix_EveryEntryUnderEveryFault(t *testing.T) {
	for _, s := range settings() {
		begin, plays, drawn := time.Now(), 0, lot(t, s.name)
		for _, e := range s.entries {
			for _, f := range faults {
				if !s.plays(e, &f) {
					continue
				}
				t.Run(s.name+"/"+e.name()+"/"+f.name, func(t *testing.T) { plays += s.cell(t, e, &f, drawn) })
			}
		}
		t.Logf("%s: %d plays in %v", s.name, plays, time.Since(begin).Round(time.Millisecond))
	}
}
