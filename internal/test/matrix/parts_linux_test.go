package matrix_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// How long what has begun lasts, by the server's clock, and by how much that is stepped
// while a message is held back: what was there before has ended then, and what has been
// asked for would not.
const (
	short   = 10 * time.Minute
	leap    = 20 * time.Minute
	lasting = 30 * time.Minute
)

// step is a call of a driver about a key.
type step = func(context.Context, driver.Driver, string) (driver.Reply, error)

// deed is a call, and what has happened before it.
type deed struct {
	name   string
	before []step
	call   step
}

func asks(req driver.Request) step {
	return func(ctx context.Context, d driver.Driver, key string) (driver.Reply, error) {
		req.Key = key
		return d.Acquire(ctx, req)
	}
}

func renews(refs ...driver.Ref) step {
	return func(ctx context.Context, d driver.Driver, key string) (reply driver.Reply, err error) {
		refs := slices.Clone(refs)
		for i := range refs {
			refs[i].Key = key + refs[i].Key
		}
		d.Renew(ctx, refs, func(i int, r driver.Reply, e error) {
			if i == 0 {
				reply, err = r, e
			}
		})
		return reply, err
	}
}

func releases(ref driver.Ref) step {
	return func(ctx context.Context, d driver.Driver, key string) (driver.Reply, error) {
		ref.Key = key
		return d.Release(ctx, ref)
	}
}

func breaks(id string) step {
	return func(ctx context.Context, d driver.Driver, key string) (driver.Reply, error) {
		return d.(driver.Breaker).Break(ctx, key, id, "by hand")
	}
}

// deeds are calls of a driver, one of each kind.
func deeds() []deed {
	a, b := driver.Request{ID: "a", TTL: short}, driver.Request{ID: "b", TTL: short}
	longer, waits, reads, writes := a, a, a, b
	longer.TTL, waits.TTL, waits.TicketTTL = lasting, lasting, lasting
	reads.TTL, reads.Mode, writes.Mode = lasting, driver.Shared, driver.Shared
	next := driver.Request{ID: "b", TTL: lasting, TicketTTL: lasting, HintAddress: "mail1.1", ConfirmWindow: short}
	down := driver.Request{ID: "a", TTL: lasting, Mode: driver.Shared, Downgrade: true}
	ref := driver.Ref{ID: "a", TTL: lasting}
	forbids := driver.Ref{ID: "a", RejectIDFor: lasting}
	kept := driver.Ref{ID: "a", KeepClosed: lasting}
	return []deed{
		{"asks for a free lock", nil, asks(longer)},
		{"asks for a lock that is held", []step{asks(b)}, asks(longer)},
		{"waits", []step{asks(b)}, asks(waits)},
		{"waits again", []step{asks(b), asks(waits)}, asks(waits)},
		{"reads beside a reader", []step{asks(writes)}, asks(reads)},
		{"asks again", []step{asks(a)}, asks(longer)},
		{"becomes a reader", []step{asks(a)}, asks(down)},
		{"renews", []step{asks(a)}, renews(ref)},
		{"renews before a waiter", []step{asks(a), asks(next)}, renews(ref)},
		{"confirms", []step{asks(b), asks(next)}, renews(ref)},
		{"renews several", []step{asks(a)}, renews(ref, driver.Ref{Key: "2", ID: "a", TTL: lasting}, driver.Ref{Key: "3", ID: "a", TTL: lasting})},
		{"releases", []step{asks(a)}, releases(driver.Ref{ID: "a"})},
		{"releases and hands over", []step{asks(a), asks(next)}, releases(driver.Ref{ID: "a"})},
		{"releases and forbids", []step{asks(a)}, releases(forbids)},
		{"releases and keeps closed", []step{asks(a)}, releases(kept)},
		{"breaks", []step{asks(a)}, breaks("a")},
	}
}

// parts is a play of calls of which the messages meet with something in their midst.
type parts struct {
	*testing.T
	*world
	stage *stage
	step  func(time.Duration)
	n     int
	plays int
}

// picture shows a lock in whole minutes.
func (p *parts) picture(key string) string {
	p.Helper()
	snap, err := p.stage.look.Inspect(p.Context(), key)
	if err != nil {
		p.Fatal(err)
	}
	coarse := func(d time.Duration) time.Duration { return d.Round(2 * time.Minute) }
	text := fmt.Sprintf("closed %v", coarse(snap.Closed))
	for _, h := range snap.Holders {
		text += fmt.Sprintf(", %s holds it (%d) for %v, confirmed %t", h.ID, h.Mode, coarse(h.Remaining), h.Confirmed)
	}
	for _, w := range snap.Waiters {
		text += fmt.Sprintf(", %s waits at %d for %v", w.ID, w.Position, coarse(w.Remaining))
	}
	return text
}

// prepared returns a key at which has happened what comes before a call, by one process or
// by another.
func (p *parts) prepared(v deed, by driver.Driver) string {
	p.Helper()
	p.n++
	key := fmt.Sprintf("p%d", p.n)
	for _, do := range v.before {
		p.surely(do, by, key)
	}
	return key
}

// surely does something with which nothing interferes. That a connection has been cut may be
// noticed by the next request only.
func (p *parts) surely(do step, by driver.Driver, key string) driver.Reply {
	p.Helper()
	for try := range 8 {
		reply, err := do(p.Context(), by, key)
		if err == nil {
			return reply
		}
		if try == 7 || !timing.Definite(err) {
			p.Fatal(err)
		}
	}
	panic("unreachable")
}

// play has one message of a call meet with a fate, and judges what the caller is told, and
// what others see, by the same call of another lock, with which nothing interferes. It
// reports of how many parts the message is, 0 if the call sends fewer messages.
func (p *parts) play(v deed, by int, f fate, at, part int) int {
	p.Helper()
	key, other := p.prepared(v, p.drivers[by]), p.prepared(v, p.drivers[by])
	before := p.picture(key)
	p.mu.Lock()
	p.part, p.parts = part, 1
	p.midst = func() {
		if p.picture(key) != before {
			return // it has been done by a message before this one
		}
		p.step(leap)
		before = p.picture(key) // whatever happens now happens later than this
	}
	p.mu.Unlock()
	p.arm(f, at, 0)
	got, err := v.call(p.Context(), p.drivers[0], key)
	p.mu.Lock()
	met, parts := p.met, p.parts
	p.mu.Unlock()
	p.arm(arrives, 0, 0)
	if met == 0 {
		return 0
	}
	p.plays++
	want := p.surely(v.call, p.drivers[0], other)
	seen, after := p.picture(key), p.picture(other)
	name := fmt.Sprintf("%s, prepared by %d, message %d, fate %d, part %d", v.name, by, at, f, part)
	switch {
	case err == nil && (got.State != want.State || seen != after):
		p.Errorf("%s: %d, and there is %s; want %d and %s", name, got.State, seen, want.State, after)
	case err != nil && timing.Definite(err) && seen != before:
		p.Errorf("%s: nothing is said to have happened (%v), and there is %s; before it was %s", name, err, seen, before)
	case err != nil && seen != before && seen != after:
		p.Errorf("%s: %v, and there is %s; before it was %s, and done it would be %s", name, err, seen, before, after)
	}
	if err == nil {
		return parts
	}
	p.surely(v.call, p.drivers[0], key)
	if seen := p.picture(key); seen != after {
		p.Errorf("%s, and again, there is %s; want %s", name, seen, after)
	}
	return parts
}

// TestMatrix_PartsOfMessagesToPostgres has each message of each call of a driver end in its
// midst: the request, or the answer, after some of its parts. And it has each be held back,
// until the leases have ended that there were and somebody has looked. What is said to have
// had no effect has none; what others see is what was before, or what the call makes of it
// when nothing interferes; and what a request that was held back makes of it is what it
// would have made of what somebody has seen meanwhile.
func TestMatrix_PartsOfMessagesToPostgres(t *testing.T) {
	skip.Nightly(t, "it takes some seconds of a PostgreSQL server")
	skip.Racing(t, "the server has no race detector")
	server, clock := postgrestest.StartWithClock(t, "synchronous_commit=on")
	st := newStage(t, server)
	w, err := st.world("", nil, false, postgresdriver.WithTimeout(20*time.Second)) // no pause of the machine is a fault
	if err != nil {
		t.Fatal(err)
	}
	defer w.stop()
	p := &parts{T: t, world: w, stage: st, step: clock.Step}
	begin, rng := time.Now(), rand.New(rand.NewPCG(*seed, 4)) //nolint:gosec // to be repeated
	t.Logf("of each message one part of %d, by lot: -matrix.seed=%d", oneOf, *seed)
	for _, v := range deeds() {
		for by := range 2 {
			for at := range 4 {
				p.play(v, by, heldBack, at, 0)
				for _, f := range []fate{cutRequest, cutAnswer} {
					for part, n := 1, 1; part <= n; part++ {
						if part > 1 && rng.IntN(oneOf) > 0 {
							continue
						}
						if n = p.play(v, by, f, at, part); f == cutAnswer {
							n-- // all of an answer is none that was cut
						}
					}
				}
			}
		}
		if t.Failed() {
			t.Fatalf("after %v", time.Since(begin).Round(time.Millisecond))
		}
	}
	t.Logf("%d plays in %v", p.plays, time.Since(begin).Round(time.Millisecond))
}
