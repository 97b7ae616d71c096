package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// life is the time for which a client relies on a lease.
var life = timing.Life(ttl, drift)

const key = "k"

// cast is a play: two clients, of which only the first meets faults, and the leases that were
// granted to them.
type cast struct {
	*world
	a, b *leasehold.Client
	// ctx is the context of the call, which may end.
	end    context.CancelCauseFunc
	idle   bool // when the fault came the first client had no lease
	forget bool // the store has lost acknowledged data
	// thin means that a lease may be on a bare majority, of which one node has forgotten it: the
	// lease is lost, and its holder notices at the next renewal. Until then no other client gets
	// the lock.
	thin bool
	d    disturbance

	mu     sync.Mutex
	live   []*belief
	last   int64 // the greatest token of a writer
	wrongs []string
	outer  *leasehold.Lease
	multi  *leasehold.MultiLease
	wg     sync.WaitGroup
}

// belief is a lease that was granted, until it is given back.
type belief struct {
	*leasehold.Lease
	shared bool
}

func (c *cast) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrongs = append(c.wrongs, fmt.Sprintf(format, args...))
}

// enters checks a grant (P1, P4).
func (c *cast) enters(l *leasehold.Lease, shared bool) *belief {
	b := &belief{l, shared}
	c.mu.Lock()
	defer c.mu.Unlock()
	nested := false
	for _, other := range c.live {
		if other.Key() != l.Key() {
			continue
		}
		nested = nested || other.ID() == l.ID()
		if other.ID() != l.ID() && other.Context().Err() == nil && l.Context().Err() == nil && (!shared || !other.shared) && !c.forget {
			c.wrongs = append(c.wrongs, fmt.Sprintf("%s holds %q together with %s", l.Owner(), l.Key(), other.Owner()))
		}
	}
	if !shared && !nested && l.Key() == key {
		if l.Token() <= c.last {
			c.wrongs = append(c.wrongs, fmt.Sprintf("the token %d follows %d", l.Token(), c.last))
		}
		c.last = l.Token()
	}
	c.live = append(c.live, b)
	c.strays.Go(func() { c.watch(l) })
	return b
}

// watch checks that the context of a lease ends by the deadline of the lease (P2).
func (c *cast) watch(l *leasehold.Lease) {
	for {
		deadline := l.Deadline()
		select {
		case <-l.Context().Done():
			return
		case <-time.After(time.Until(deadline) + time.Millisecond):
		}
		if l.Deadline().After(deadline) {
			continue
		}
		select {
		case <-l.Context().Done():
		default:
			c.wrong("the context of %s has not ended by the deadline of its lease of %q", l.Owner(), l.Key())
		}
		return
	}
}

// log takes some time for an error. It drops warnings: a driver may log them while it holds a
// mutex, and a bubble cannot sleep there.
type log struct{ slog.Handler }

func (log) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (log) Handle(context.Context, slog.Record) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

func (l log) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l log) WithGroup(string) slog.Handler      { return l }

func (c *cast) leaves(l *leasehold.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = slices.DeleteFunc(c.live, func(b *belief) bool { return b.Lease == l })
}

// granted is enters for the results of a call.
func (c *cast) granted(shared bool) func(*leasehold.Lease, error) error {
	return func(l *leasehold.Lease, err error) error {
		if err == nil {
			c.enters(l, shared)
		}
		return err
	}
}

// truth compares beliefs with the store: each live lease is in the store, for at least as long
// and with the same token; each released lease is not.
func (c *cast) truth(when string) {
	c.mu.Lock()
	live := slices.Clone(c.live)
	c.mu.Unlock()
	for _, b := range live {
		left, since := b.Remaining(), time.Now()
		if b.Context().Err() != nil || c.lying() {
			continue
		}
		snap := c.look(b.Key())
		if b.Context().Err() != nil || !c.has(b) {
			continue // it ended while we looked
		}
		left -= time.Since(since)
		i := slices.IndexFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == b.ID() })
		switch {
		case i < 0:
			c.wrong("%s: %s has a live lease of %q that is not in the store: %+v", when, b.Owner(), b.Key(), snap)
		case snap.Holders[i].Remaining < left && len(c.tables) == 1:
			c.wrong("%s: the lease of %s lasts for %v, and in the store for %v", when, b.Owner(), left, snap.Holders[i].Remaining)
		case snap.Holders[i].Token != b.Token() && len(c.tables) == 1:
			c.wrong("%s: the lease has the token %d, in the store %d", when, b.Token(), snap.Holders[i].Token)
		}
	}
}

// has reports whether a lease has not been given back.
func (c *cast) has(b *belief) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.live, b)
}

// lying reports whether a client may still rely on a lease that the store forgot.
func (c *cast) lying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forget || c.thin
}

// absent checks that the first client has no holder and no waiter in the store.
func (c *cast) absent(when string, except ...string) {
	for _, k := range []string{key, "k2"} {
		snap := c.look(k)
		for _, h := range snap.Holders {
			if h.Owner == "A" && !slices.Contains(except, h.ID) {
				c.wrong("%s: A holds %q: %+v", when, k, h)
			}
		}
		for _, h := range snap.Waiters {
			if h.Owner == "A" && len(c.tables) == 1 {
				c.wrong("%s: A waits for %q: %+v", when, k, h)
			}
		}
	}
}

// clean checks that the reachable node of a quorum has no holder or waiter of the first client.
func (c *cast) clean(except []string) {
	if len(c.tables) == 1 {
		return
	}
	snap, err := c.tables[len(c.tables)-1].join().Inspect(context.Background(), key)
	if err != nil {
		c.wrong("look: %v", err)
	}
	for _, h := range snap.Holders {
		if h.Owner == "A" && !slices.Contains(except, h.ID) {
			c.wrong("a node has %+v", h)
		}
	}
}

// ids returns the ids of the leases of the first client.
func (c *cast) ids() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.live {
		ids = append(ids, b.ID())
	}
	return ids
}

// disturbance describes the disturbance of a call.
type disturbance struct {
	fate   fate
	at     int
	lasts  time.Duration
	then   fate // the fate after it
	lasts2 time.Duration
	away   bool // another node of a quorum receives no message
	before bool // the context has ended before
	during bool // it ends during the first message
	after  bool // it ends when the call has returned
	closes bool // the client is closed during the first message
	later  bool // it begins when the call has returned, a moment after that
	hurry  bool // granted leases are given back at once, before late messages arrive
	long   bool // leases last longer than all faults
}

func (d *disturbance) ttl() time.Duration {
	if d.long {
		return 20 * ttl
	}
	return ttl
}

// play calls an entry by the first client, checks the outcome, and reports whether a message met
// the fault.
func play(t *testing.T, open func(*testing.T) *world, e *entry, d disturbance) (wrongs []string, met bool) {
	d.long = d.long && !e.stays
	synctest.Test(t, func(t *testing.T) {
		c := &cast{world: open(t), d: d}
		if err := c.connect(leasehold.WithTTL(d.ttl()), leasehold.WithLogger(slog.New(log{}))); err != nil {
			t.Fatal(err)
		}
		c.run(e, d)
		c.strays.Wait()
		c.stop()
		wrongs, met = c.wrongs, c.hasMet()
	})
	return wrongs, met
}

// hasMet reports whether a play has met its fault. A context that ends before or after the call
// always counts; a later fault counts if the client has no lease.
func (c *cast) hasMet() bool {
	return c.disturbed() || c.idle || c.d.before || c.d.after
}

// disturbed reports whether a message of a play has met the fault by now.
func (c *cast) disturbed() bool {
	c.weather.mu.Lock()
	defer c.weather.mu.Unlock()
	return c.met > 0
}

// connect opens both clients.
func (c *cast) connect(opts ...leasehold.Option) (err error) {
	if c.a, err = leasehold.New(c.drivers[0], append(opts, leasehold.WithName("A"))...); err == nil {
		c.b, err = leasehold.New(c.drivers[1], append(opts, leasehold.WithName("B"))...)
	}
	return err
}

func (c *cast) run(e *entry, d disturbance) {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	c.end = end
	if e.prepare != nil {
		if err := e.prepare(c); err != nil {
			c.wrong("prepare: %v", err)
			return
		}
	}
	time.Sleep(time.Millisecond) // until all nodes of a quorum have received it
	for _, t := range c.tables {
		t.Keep()
	}
	old := c.ids()
	c.thin = (loses(d.fate) || loses(d.then)) && len(c.tables) > 1
	if d.closes && e.isRoute() {
		defer c.listen()()
	}
	c.disturb(ctx, e, d)
	if d.before {
		end(errPatience)
	}
	begin := time.Now()
	err := e.call(ctx, c)
	c.judge(e, d, err, time.Since(begin), old)
	if d.after {
		end(errPatience)
		time.Sleep(time.Millisecond)
	}
	if d.later {
		time.Sleep(moment)
		c.idle = len(c.ids()) == 0 || e.short
		c.arm(d.fate, d.at, d.lasts)
	}
	if d.hurry && err == nil && len(c.ids()) > len(old) {
		c.giveBack()
		time.Sleep(lateness + ttl/2 - time.Since(begin)) // until late messages have arrived
		c.absent("given back", old...)
	}
	c.mu.Lock()
	ended := d.before || d.during || d.after
	c.mu.Unlock()
	time.Sleep(lateness + ttl)
	c.heal()
	c.wg.Wait()
	time.Sleep(2 * ttl) // it is renewed, or known to be lost
	c.mu.Lock()
	if c.forget && e.ahead {
		c.last = 0
	}
	c.forget = false // all holders of lost leases have noticed by now
	c.mu.Unlock()
	if !d.closes || e.isRoute() {
		c.truth("later")
	}
	if (mild(d) || c.dials && d.fate == noDial) && (!d.later || !e.tires) && !ended && !e.short {
		c.kept()
	}
	if err != nil && !e.keeps || ended && !e.keeps {
		mine := c.ids() // a lease that was granted before its context ended stays closed (P10)
		c.absent("later", mine...)
		c.clean(mine)
	}
	c.succeed(e)
}

// goodbye is how long a service may need to end, because of its requests to the store.
const goodbye = 2200 * time.Millisecond

// moment is the time from the end of a call to a fault that begins later. Requests that the
// client sends at once are done by then.
const moment = 10 * time.Millisecond

// mild reports whether a disturbance costs no lease: only one message meets it, or it is an
// absence of the store that is shorter than a lease and begins after the grant.
func mild(d disturbance) bool {
	return d.later || slices.Contains([]fate{lost, unanswered, late, doubled, slow, stuck}, d.fate) && d.lasts == 0 && d.then == arrives && !d.closes
}

// kept checks that a client still has each lease that it has not given back (P3).
func (c *cast) kept() {
	c.mu.Lock()
	live := slices.Clone(c.live)
	c.mu.Unlock()
	for _, b := range live {
		if b.Context().Err() != nil {
			c.wrong("%s has lost its lease of %q: %v", b.Owner(), b.Key(), context.Cause(b.Context()))
		}
	}
}

var errPatience = errors.New("out of patience")

// disturb begins the fault.
func (c *cast) disturb(ctx context.Context, e *entry, d disturbance) {
	w := c.weather
	if !d.later {
		w.arm(d.fate, d.at, d.lasts)
	}
	if c.aim != nil {
		c.aim()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.then, w.long = d.then, d.lasts2
	if d.away && c.other != nil {
		c.other.arm(lost, 0, 12*time.Second)
	}
	w.meets = func() {
		switch {
		case d.during:
			c.wg.Go(func() {
				time.Sleep(slowness / 2)
				c.end(errPatience)
			})
		case d.closes && e.isRoute():
			c.wg.Go(func() {
				time.Sleep(slowness / 2)
				begin := time.Now()
				c.shut()
				if took := time.Since(begin); took > goodbye && !e.slow {
					c.wrong("the service needs %v to end", took)
				}
			})
		case d.closes:
			c.wg.Go(func() {
				time.Sleep(slowness / 2)
				if err := c.a.Close(); err != nil {
					c.wrong("close: %v", err)
				}
			})
		}
		if (loses(d.fate) || loses(d.then)) && len(c.tables) == 1 { // a quorum loses no lease with one node
			c.forget = true // before it does
		}
	}
}

// loses reports whether a store loses acknowledged data by a fate.
func loses(f fate) bool { return slices.Contains([]fate{forgets, goesBack, failsOver, wentBack}, f) }

func (c *cast) heal() {
	w := c.weather
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fixed = true
	if c.other != nil {
		c.other.mu.Lock()
		defer c.other.mu.Unlock()
		c.other.fixed = true
	}
}

// judge checks the result of an entry.
func (c *cast) judge(e *entry, d disturbance, err error, took time.Duration, old []string) {
	bound := time.Minute
	switch {
	case d.before:
		bound = 0
	case d.during, d.closes && !e.isRoute(), e.blind:
		bound = slowness/2 + 6*time.Second // a release may take 5 s
	}
	if e.slow {
		bound += 10 * time.Second
	}
	if took > bound {
		c.wrong("it took %v, and returned %v", took, err)
	}
	c.truth("at its end")
	switch {
	case err == nil:
		if e.leaves && !c.lying() {
			c.absent("no error, and the lease has not ended")
		}
	case errors.Is(err, leasehold.ErrUnavailable) && !errors.Is(err, leasehold.ErrUnknown):
		if !e.keeps {
			c.absent(fmt.Sprintf("definite (%v)", err), old...)
		}
	case c.explains(e, d, err):
	default:
		c.wrong("no fault explains the error %v", err)
	}
}

// explains reports whether the disturbance is a reason for an error.
func (c *cast) explains(e *entry, d disturbance, err error) bool {
	ended := d.before || d.during
	// A lease may be over if it was without its store for as long as it lives.
	over := c.lying() || ended || d.closes || e.mayLose || d.lasts > d.ttl() || d.fate == frozen || d.fate == onEdge || d.fate == beforeEdge
	switch {
	case e.reads && strings.HasPrefix(e.of[0], "GET "):
		return true // the HTTP client of the test has errors of its own
	case errors.Is(err, leasehold.ErrUnknown):
		return !e.reads // a read-only call changes no state, so its outcome is never unknown
	case errors.Is(err, leasehold.ErrLost) && over: // and the other locks of several have ended with it
		return true
	case d.closes && errors.Is(err, leasehold.ErrClosed): // and the contexts of several locks end together
		return true
	case errors.Is(err, errPatience), errors.Is(err, leasehold.ErrContextEnded):
		return ended
	case errors.Is(err, leasehold.ErrClosed), errors.Is(err, leasehold.ErrReleased):
		return d.closes
	case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrNotHeld):
		return over
	case errors.Is(err, context.Canceled): // but for the last renewal of a lease that was lost
		return ended
	case e.short && errors.Is(err, context.DeadlineExceeded):
		return true
	case errors.Is(err, leasehold.ErrHeld):
		return e.waits || errors.Is(err, errPatience)
	}
	return false
}

// succeed makes the first client give everything back, and the second client take the lock after
// it.
func (c *cast) succeed(e *entry) {
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		l, err := c.b.Mutex(key).Lock(ctx)
		if err == nil {
			c.enters(l, false)
		}
		got <- err
	}()
	time.Sleep(ttl)
	c.giveBack()
	begin := time.Now()
	if err := <-got; err != nil {
		c.wrong("the next one asks for the lock: %v", err)
	}
	bound := 2 * ttl
	if e.slow {
		bound += 15 * time.Second // an operation goes on without its client
	}
	if took := time.Since(begin); took > bound {
		c.wrong("the next one gets the lock after %v", took)
	}
	for _, client := range []*leasehold.Client{c.a, c.b} {
		if err := client.Close(); err != nil && !errors.Is(err, leasehold.ErrUnknown) {
			c.wrong("close: %v", err)
		}
	}
	for _, k := range []string{key, "k2"} {
		if snap := c.look(k); len(snap.Holders)+len(snap.Waiters) > 0 && len(c.tables) == 1 {
			c.wrong("left behind: %+v", snap)
		}
	}
}

// giveBack releases all leases of the first client.
func (c *cast) giveBack() {
	c.mu.Lock()
	mine := slices.Clone(c.live)
	c.mu.Unlock()
	for _, b := range mine {
		if b.Owner() == "B" {
			continue
		}
		live := b.Context().Err() == nil
		err := b.Release()
		c.leaves(b.Lease)
		if live && err != nil {
			c.wrong("the release of a live lease: %v", err)
		}
	}
}
