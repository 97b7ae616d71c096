package explore_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/teststore"
	"github.com/leasehold-go/leasehold/internal/timing"
)

var (
	seed     = flag.Uint64("explore.seed", 1, "the seed of the calls of drivers and the fates of their messages")
	onlyPlay = flag.Int("explore.play", -1, "of the calls of drivers, only this play")
)

// maxSkew is the greatest difference between the clocks of nodes.
const maxSkew = 300 * time.Millisecond

// turn is one turn of a caller: it asks a driver for a lease, holds it if it is granted it,
// and gives it back. Several may ask for one lease at the same time, as the replicas of a
// service do for a client that asks again.
type turn struct {
	caller, process int
	lease           terms
	pause           time.Duration // before it asks
	patience        time.Duration // for how long it waits for an answer, 0 for as long as it takes
	visit           string
	hold            time.Duration
	renews          bool
	leaves          bool // does not release, like a process that has died
	breaks          bool // it breaks the lease instead of asking for it
}

// terms are equal in all requests for one lease.
type terms struct {
	id          string
	ttl, ticket time.Duration
	shared      bool
	ahead       time.Duration // MinToken, as a time after the clock; 0 for none
}

func oneOf[T any](rng *rand.Rand, all ...T) T { return all[rng.IntN(len(all))] }

// drawTurns draws the turns of two to four callers in two processes.
func drawTurns(rng *rand.Rand) (all []turn) {
	const ms = time.Millisecond
	for caller := range 2 + rng.IntN(3) {
		for n := range 1 + rng.IntN(3) {
			t := turn{
				caller: caller, process: rng.IntN(2),
				pause: oneOf(rng, 0, 0, 10*ms, 300*ms, 900*ms, 1500*ms), patience: oneOf(rng, 0, 0, 0, 5*ms, 400*ms, 1200*ms),
				hold: oneOf(rng, 0, 10*ms, 400*ms, 1500*ms), renews: rng.IntN(3) == 0, leaves: rng.IntN(4) == 0,
			}
			if len(all) > 0 && rng.IntN(2) == 0 {
				t.lease = all[rng.IntN(len(all))].lease
			} else {
				t.lease = terms{id: fmt.Sprintf("l%d.%d", caller, n), ttl: oneOf(rng, 500*ms, 3*time.Second, 20*time.Second), shared: rng.IntN(8) == 0}
				if rng.IntN(4) == 0 {
					t.lease.ticket = time.Second
				}
				if rng.IntN(8) == 0 {
					t.lease.ahead = time.Hour
				}
			}
			if rng.IntN(2) == 0 {
				t.visit = fmt.Sprintf("v%d.%d", caller, n)
			}
			t.breaks = len(all) > 0 && rng.IntN(8) == 0
			all = append(all, t)
		}
	}
	return all
}

// fateSource draws the fates of messages: of single messages, and of all messages of one way for
// a while.
type fateSource struct {
	rng    *rand.Rand
	fates  []fate
	share  float64
	counts map[string]int
	phases []phase
}

type phase struct {
	way      string
	from, to int
	fate     fate
}

func newFateSource(rng *rand.Rand, fates []fate, ways []string) *fateSource {
	c := &fateSource{rng: rng, fates: fates, share: oneOf(rng, 0, 0.05, 0.15, 0.3), counts: make(map[string]int)}
	for range rng.IntN(5) {
		from := rng.IntN(8)
		c.phases = append(c.phases, phase{oneOf(rng, ways...), from, from + 1 + rng.IntN(6), oneOf(rng, fates...)})
	}
	return c
}

func (c *fateSource) draw(way string) fate {
	n := c.counts[way]
	c.counts[way]++
	for _, s := range c.phases {
		if s.way == way && s.from <= n && n < s.to && s.fate != forgets {
			return s.fate
		}
	}
	if c.rng.Float64() < c.share {
		if f := oneOf(c.rng, c.fates...); f != forgets || c.rng.IntN(4) == 0 {
			return f
		}
	}
	return arrives
}

// callPlay is one play. It checks the answers of the drivers.
type callPlay struct {
	*post
	nodes   []*teststore.Table
	drivers [2]driver.Driver
	look    []*roomdriver.Driver // at each node
	quorum  bool

	mu      sync.Mutex
	forgot  bool                       // a node has lost its data
	claims  map[string]*claim          // by the lease
	ended   map[string]bool            // a release or a break of this lease was sent after its last grant
	asking  map[string]int             // turns in progress, by the lease
	turns   map[string]int             // finished turns, by the lease
	kept    map[string]bool            // its last holder has died
	by      map[string]string          // the call that was granted, by node and lease
	nothing map[string]bool            // calls whose error excludes any effect
	visits  map[string]map[string]bool // of the requests for a lease
	stains  map[string]bool            // leases that may stay at a node: a release has not arrived, or a request is late
	tokens  map[string]int64           // the greatest of each writer's lease
	story   []string
	wrongs  []string
}

// claim is a lease that a caller was granted.
type claim struct {
	terms
	until time.Time
	token int64
	told  int // index of the grant in the order of events
}

func (c *claim) live() bool { return time.Now().Before(c.until) }

// majority is how many nodes decide.
func (c *callPlay) majority() int { return len(c.nodes)/2 + 1 }

func (c *callPlay) tell(format string, args ...any) {
	c.story = append(c.story, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (c *callPlay) wrong(format string, args ...any) {
	c.tell("WRONG: "+format, args...)
	c.wrongs = append(c.wrongs, fmt.Sprintf(format, args...))
}

// answerText returns a short text of an answer.
func answerText(reply driver.Reply, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("state %d, token %d, replayed %t", reply.State, reply.Token, reply.Replayed)
}

// inside returns the nodes that have a lease.
func (c *callPlay) inside(id string) (in []int) {
	for i, d := range c.look {
		snap, err := d.Inspect(context.Background(), "k")
		if err != nil {
			panic(err)
		}
		if slices.ContainsFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id }) {
			in = append(in, i)
		}
	}
	return in
}

// label is the label of a request that names its call.
const label = "call"

// letIn records a grant of a node, and checks it if the error of its call excluded any
// effect.
func (c *callPlay) letIn(call, id string, node int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[fmt.Sprint(node, id)] = call
	if c.nothing[call] {
		c.effectless(call, id)
	}
}

// effectless checks that a call has no effect after an error that excludes one (P8). The
// caller holds mu.
func (c *callPlay) effectless(call, id string) {
	in := slices.DeleteFunc(c.inside(id), func(node int) bool { return c.by[fmt.Sprint(node, id)] != call })
	if len(in) >= c.majority() {
		c.wrong("the error excludes any effect, and %s is inside at %d of %d", id, len(in), len(c.nodes))
	}
}

// meets records the fate of a message.
func (c *callPlay) meets(from, what string, f fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f != arrives {
		c.tell("%s: %s %s", from, what, fateNames[f])
	}
	verb, id, _ := strings.Cut(what, " ")
	node := from[strings.LastIndex(from, " ")+1:]
	switch {
	case f == forgets:
		c.forgot = true
	case f == late, verb == "release" && f == lost:
		c.stains[node+id] = true
	case f == slow, f == delayed, f == awaited:
		c.stains[node] = true // its caller may give up, and does not ask it until it answers
	}
}

// watch checks during the play that each granted lease is in the store (P3, P7).
func (c *callPlay) watch(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-time.After(50 * time.Millisecond):
		}
		c.mu.Lock()
		for id, claim := range c.claims {
			c.holds(id, claim)
		}
		c.mu.Unlock()
	}
}

// holds checks a claim. The caller holds mu.
func (c *callPlay) holds(id string, claim *claim) {
	if c.forgot || c.ended[id] || !claim.live() {
		return
	}
	if in := c.inside(id); len(in) < c.majority() {
		c.wrong("%s was granted for another %v, and is inside at %d of %d", id, time.Until(claim.until), len(in), len(c.nodes))
		delete(c.claims, id)
	}
}

// granted checks a grant. The caller holds mu.
func (c *callPlay) granted(t turn, began time.Time, order int, reply driver.Reply) {
	id, until := t.lease.id, began.Add(timing.Life(t.lease.ttl, timing.Drift))
	if c.ended[id] {
		return // by a request that may arrive at any time
	}
	now := time.Now()
	before := c.claims[id]
	if !now.Before(until) {
		if in := c.inside(id); c.quorum && !c.forgot && len(in) < c.majority() {
			c.wrong("%s is granted for %v after %v, when it is inside at %d of %d", id, t.lease.ttl, now.Sub(began), len(in), len(c.nodes))
		}
		return
	}
	for other, claim := range c.claims {
		if other != id && claim.live() && !c.ended[other] && (!claim.shared || !t.lease.shared) {
			c.wrong("%s is granted next to %s", id, other)
		}
	}
	switch {
	case t.lease.shared:
	case before != nil && before.live() && before.told < order && reply.Token != before.token && !c.quorum:
		c.wrong("%s has the token %d, and %d when it was granted first", id, reply.Token, before.token)
	default:
		for other, token := range c.tokens {
			if other != id && reply.Token <= token || other == id && before == nil && reply.Token < token {
				c.wrong("%s has the token %d, after that of %s, %d", id, reply.Token, other, token)
			}
		}
	}
	if !t.lease.shared {
		c.tokens[id] = max(c.tokens[id], reply.Token)
	}
	if before == nil || until.After(before.until) {
		c.claims[id] = &claim{t.lease, until, reply.Token, len(c.story)}
	}
	c.holds(id, c.claims[id])
}

// play takes the turn of a caller.
func (c *callPlay) play(n int, t turn) {
	time.Sleep(t.pause)
	c.mu.Lock()
	c.asking[t.lease.id]++
	if c.visits[t.lease.id] == nil {
		c.visits[t.lease.id] = make(map[string]bool)
	}
	c.visits[t.lease.id][fmt.Sprint(t.process, t.visit)] = true
	c.mu.Unlock()
	if t.breaks {
		c.breakLease(t)
	} else {
		c.ask(n, t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking[t.lease.id]--
	c.turns[t.lease.id]++
	count := c.turns[t.lease.id]
	c.strays.Go(func() { c.gone(t.lease.id, count) })
}

// gone checks that no node keeps a lease without a holder, unless a message may still arrive
// (P9).
func (c *callPlay) gone(id string, turns int) {
	time.Sleep(lateness)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.quorum || c.forgot || c.asking[id] > 0 || c.turns[id] > turns || c.kept[id] || len(c.visits[id]) > 1 {
		return
	}
	for _, i := range c.inside(id) {
		if !c.stains[fmt.Sprint(i+1, id)] && !c.stains[fmt.Sprint(i+1)] {
			c.wrong("%s is left at node %d", id, i+1)
		}
	}
}

// ask requests the lease until it is granted, or the caller gives up.
func (c *callPlay) ask(n int, t turn) {
	unknown := false
	for try := range 4 {
		req := driver.Request{
			Key: "k", ID: t.lease.id, TTL: t.lease.ttl, TicketTTL: t.lease.ticket, Visit: t.visit, Policy: driver.Barging,
			Labels: map[string]string{label: fmt.Sprint(n, ".", try)},
		}
		if t.lease.shared {
			req.Mode = driver.Shared
		}
		if t.lease.ahead > 0 {
			req.MinToken = time.Now().Add(t.lease.ahead).UnixMicro()
		}
		ctx, cancel := context.Background(), func() {}
		if t.patience > 0 {
			ctx, cancel = context.WithTimeout(ctx, t.patience)
		}
		began := time.Now()
		c.mu.Lock()
		c.tell("%d by %d asks for %+v, visit %q, patience %v", t.caller, t.process, t.lease, t.visit, t.patience)
		order := len(c.story)
		c.mu.Unlock()
		reply, err := c.drivers[t.process].Acquire(ctx, req)
		cancel()
		c.mu.Lock()
		c.tell("%d gets %s", t.caller, answerText(reply, err))
		if unknown = unknown || err != nil && !timing.Definite(err); err == nil && reply.State == driver.Granted {
			c.granted(t, began, order, reply)
		} else if timing.Definite(err) && err != nil {
			c.nothing[req.Labels[label]] = true
			c.effectless(req.Labels[label], t.lease.id)
		}
		c.mu.Unlock()
		if err == nil && reply.State == driver.Granted {
			c.use(t, unknown)
			return
		}
		if err != nil || reply.State == driver.Gone {
			break
		}
		time.Sleep(300 * time.Millisecond)
	}
	if t.lease.ticket > 0 || !t.leaves {
		c.undo(t, unknown)
	}
}

// use holds a lease and releases it.
func (c *callPlay) use(t turn, unknown bool) {
	time.Sleep(t.hold)
	if t.renews {
		began := time.Now()
		c.mu.Lock()
		c.tell("%d renews", t.caller)
		order := len(c.story)
		c.mu.Unlock()
		c.drivers[t.process].Renew(context.Background(), []driver.Ref{{Key: "k", ID: t.lease.id, TTL: t.lease.ttl, Visit: t.visit}}, func(_ int, reply driver.Reply, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.tell("%d has renewed: %s", t.caller, answerText(reply, err))
			claim := c.claims[t.lease.id]
			switch {
			case claim == nil || c.ended[t.lease.id] || claim.told > order:
			case err == nil && reply.State == driver.Gone:
				if claim.live() && !c.forgot {
					c.wrong("%s is gone, and was granted for another %v", t.lease.id, time.Until(claim.until))
				}
				delete(c.claims, t.lease.id)
			case err == nil && reply.State == driver.Granted && time.Now().Before(began.Add(timing.Life(t.lease.ttl, timing.Drift))):
				claim.until = began.Add(timing.Life(t.lease.ttl, timing.Drift))
			}
		})
		time.Sleep(t.hold)
	}
	if t.leaves {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kept[t.lease.id] = true
	} else {
		c.end(t, driver.Ref{Key: "k", ID: t.lease.id}, unknown)
	}
}

// undo releases a possible grant whose answer the turn did not get. The reported grant of
// another turn stays, if both have visits.
func (c *callPlay) undo(t turn, unknown bool) {
	ref := driver.Ref{Key: "k", ID: t.lease.id, Visit: t.visit}
	if t.visit != "" {
		reply, err := c.drivers[t.process].Release(context.Background(), ref)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tell("%d has undone: %s", t.caller, answerText(reply, err))
		return
	}
	c.end(t, ref, unknown)
}

// breakLease breaks a lease. A grant after the answer stays, if there was an answer.
func (c *callPlay) breakLease(t turn) {
	id := t.lease.id
	c.mu.Lock()
	over := c.ended[id]
	c.ended[id] = true
	c.tell("%d breaks %s", t.caller, id)
	c.mu.Unlock()
	breaker, _ := driver.As[driver.Breaker](c.drivers[t.process])
	reply, err := breaker.Break(context.Background(), "k", id, "by hand")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell("%d has broken it: %s", t.caller, answerText(reply, err))
	if err == nil && !over && c.asking[id] == 1 { // no other request may still arrive
		delete(c.ended, id)
		delete(c.claims, id)
	}
}

// end releases a lease.
func (c *callPlay) end(t turn, ref driver.Ref, unknown bool) {
	c.mu.Lock()
	c.ended[t.lease.id] = true
	c.tell("%d releases %s", t.caller, t.lease.id)
	c.mu.Unlock()
	if unknown {
		ref.RejectIDFor = timing.ForbidFor
	}
	reply, err := c.drivers[t.process].Release(context.Background(), ref)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell("%d has released: %s", t.caller, answerText(reply, err))
}

// together returns a quorum of nodes, or a single node itself.
func together(t *testing.T, nodes []driver.Driver) driver.Driver {
	t.Helper()
	if len(nodes) == 1 {
		return nodes[0]
	}
	q, err := quorumdriver.New(nodes, quorumdriver.WithTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// newCallPlay opens drivers over nodes. One node is asked itself.
func newCallPlay(t *testing.T, rng *rand.Rand, nodes int, fates []fate) *callPlay {
	p := newPost()
	c := &callPlay{
		post: p, quorum: nodes > 1, claims: make(map[string]*claim), ended: make(map[string]bool), asking: make(map[string]int), turns: make(map[string]int), kept: make(map[string]bool),
		by: make(map[string]string), nothing: make(map[string]bool), tokens: make(map[string]int64), visits: make(map[string]map[string]bool), stains: make(map[string]bool),
	}
	var ways []string
	for i := range nodes {
		ahead := time.Duration(rng.Int64N(int64(maxSkew)))
		c.nodes = append(c.nodes, teststore.NewTable(func() time.Time { return time.Now().Add(ahead) }))
		c.look = append(c.look, c.nodes[i].Join())
	}
	late := rng.IntN(4) == 0
	for process, name := range []string{"A", "B"} {
		var asked []driver.Driver
		for i, table := range c.nodes {
			way := fmt.Sprintf("%s at %d", name, i+1)
			ways, asked = append(ways, way), append(asked, p.reach(t, way, table, func(req driver.Request, reply driver.Reply) {
				if !reply.Replayed {
					c.letIn(req.Labels[label], req.ID, i)
				}
			}))
		}
		q := together(t, asked)
		if c.drivers[process] = q; c.quorum && !late {
			// It is set up: nodes that are new serve only when all of them have answered.
			if reply, err := q.Acquire(t.Context(), driver.Request{Key: "first", ID: name, TTL: time.Second}); err != nil || reply.State != driver.Granted {
				t.Fatal(reply, err)
			}
			if _, err := q.Release(t.Context(), driver.Ref{Key: "first", ID: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(time.Millisecond) // all messages of the set-up have arrived
	source := newFateSource(rng, fates, ways)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw, p.pick, p.met = source.draw, rng.IntN, c.meets
	return c
}

// playCalls is one play, drawn by lot.
func playCalls(t *testing.T, nodes int, fates []fate, n int) (wrongs, story []string) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(*seed, uint64(n))) //nolint:gosec // to be repeated
		turns := drawTurns(rng)
		c := newCallPlay(t, rng, nodes, fates)
		end := make(chan struct{})
		var watching, callers sync.WaitGroup
		watching.Go(func() { c.watch(end) })
		for caller := range 4 {
			callers.Go(func() {
				for n, turn := range turns {
					if turn.caller == caller {
						c.play(n, turn)
					}
				}
			})
		}
		callers.Wait()
		time.Sleep(lateness + 100*time.Millisecond)
		close(end)
		watching.Wait()
		for _, d := range c.drivers {
			if err := d.Close(); err != nil {
				c.wrongs = append(c.wrongs, fmt.Sprintf("close: %v", err))
			}
		}
		c.strays.Wait()
		c.stop()
		wrongs, story = c.wrongs, c.story
	})
	return wrongs, story
}

// TestExplore_CallsOfADriver calls a driver directly, in two processes and often for one lease
// at the same time, while messages are lost, late, slow, held back and delivered in any order,
// and the clocks of nodes differ. It checks the contract of package driver: a granted lease
// lasts as long as its answer states, even if another turn undoes its own grant; leases do
// not overlap, and tokens rise; no grant is reported after the end of its lease; an error
// that excludes any effect is true, then and later; and a quorum keeps no lease that it did
// not grant.
func TestExplore_CallsOfADriver(t *testing.T) {
	plays := 2000
	switch {
	case *deep:
		plays = 50_000
	case fewer() > 0:
		plays = 200
	}
	all := []fate{lost, unanswered, slow, delayed, awaited, late, held, forgets}
	for _, sys := range []struct {
		name  string
		nodes int
		fates []fate
	}{{"store", 1, all[:7]}, {"quorum of three", 3, all}, {"quorum of five", 5, all}} {
		t.Run(sys.name, func(t *testing.T) {
			begin := time.Now()
			from, to := 0, plays
			if *onlyPlay >= 0 {
				from, to = *onlyPlay, *onlyPlay+1
			}
			for n := from; n < to; n++ {
				if wrongs, story := playCalls(t, sys.nodes, sys.fates, n); len(wrongs) > 0 {
					t.Fatalf("after %d plays, %v: %s\n%s\nplay it again with -run '%s' -explore.seed=%d -explore.play=%d", n-from+1, time.Since(begin).Round(time.Millisecond),
						strings.Join(wrongs, "\n"), strings.Join(story, "\n"), t.Name(), *seed, n)
				}
			}
			t.Logf("%d plays in %v", to-from, time.Since(begin).Round(time.Millisecond))
		})
	}
}
