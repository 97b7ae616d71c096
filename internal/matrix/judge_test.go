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

// life is how long a lease is believed in.
var life = timing.Life(ttl, drift)

const key = "k"

// cast is a play: two clients, of which the requests of the first suffer, and what they
// were told.
type cast struct {
	*world
	a, b *leasehold.Client
	// ctx is that under which the entry is called, which may end.
	end    context.CancelCauseFunc
	forget bool // the store has lost what it had acknowledged
	// thin tells that a lease may have had no more than a majority, of which one node has
	// forgotten it: it is lost, and that is told at its next renewal. Nobody holds beside it.
	thin bool

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

// enters judges a grant (P1, P4).
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
			c.wrongs = append(c.wrongs, fmt.Sprintf("%s holds %q beside %s", l.Owner(), l.Key(), other.Owner()))
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

// watch judges whether somebody who only waits for the end of the context is told of a
// loss by the deadline (P2).
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
			c.wrong("%s is not told by its deadline that its lease of %q is over", l.Owner(), l.Key())
		}
		return
	}
}

// log takes its time with a loss. A warning may be given while a driver keeps others from
// answering, where a bubble cannot wait.
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

// granted is enters for what a call returned.
func (c *cast) granted(shared bool) func(*leasehold.Lease, error) error {
	return func(l *leasehold.Lease, err error) error {
		if err == nil {
			c.enters(l, shared)
		}
		return err
	}
}

// truth judges whether what was told is so: whoever believes in a lease is inside, for
// as long as it believes and with its token; and whoever was told that it left is not.
func (c *cast) truth(when string) {
	c.mu.Lock()
	live := slices.Clone(c.live)
	c.mu.Unlock()
	for _, b := range live {
		left := b.Remaining()
		if b.Context().Err() != nil || c.lying() {
			continue
		}
		snap := c.look(b.Key())
		i := slices.IndexFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == b.ID() })
		switch {
		case i < 0:
			c.wrong("%s: %s believes in a lease of %q that the store has not: %+v", when, b.Owner(), b.Key(), snap)
		case snap.Holders[i].Remaining < left && len(c.tables) == 1:
			c.wrong("%s: %s believes for %v, the store for %v", when, b.Owner(), left, snap.Holders[i].Remaining)
		case snap.Holders[i].Token != b.Token() && len(c.tables) == 1:
			c.wrong("%s: the lease has the token %d, in the store %d", when, b.Token(), snap.Holders[i].Token)
		}
	}
}

// lying reports whether a lease may be believed in that the store forgot.
func (c *cast) lying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forget || c.thin
}

// absent judges that nobody of the first client is inside or waits.
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

// ids are those of the leases that the first client had before.
func (c *cast) ids() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.live {
		ids = append(ids, b.ID())
	}
	return ids
}

// call is how a play is disturbed.
type disturbance struct {
	fate   fate
	at     int
	lasts  time.Duration
	then   fate // what follows
	lasts2 time.Duration
	away   bool // another node of a quorum hears nothing
	before bool // the context has ended before
	during bool // it ends during the first message
	after  bool // it ends when the call has returned
	closes bool // the client is closed during the first message
	hurry  bool // what was granted is given back at once, before what is late arrives
	long   bool // leases last longer than the fault and all that follows
}

func (d *disturbance) ttl() time.Duration {
	if d.long {
		return 20 * ttl
	}
	return ttl
}

// play has the first client call an entry, and judges what comes of it.
func play(t *testing.T, open func(*testing.T) *world, e *entry, d disturbance) (wrongs []string) {
	d.long = d.long && !e.stays
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		c := &cast{world: w}
		for i, p := range []**leasehold.Client{&c.a, &c.b} {
			var err error
			*p, err = leasehold.New(w.drivers[i], leasehold.WithTTL(d.ttl()), leasehold.WithName([]string{"A", "B"}[i]), leasehold.WithLogger(slog.New(log{})))
			if err != nil {
				t.Fatal(err)
			}
		}
		c.run(e, d)
		if len(c.wrongs) > 0 {
			wrongs = c.wrongs
		}
		w.strays.Wait()
		w.stop()
	})
	return wrongs
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
	time.Sleep(time.Millisecond) // all nodes of a quorum have heard of it
	for _, t := range c.tables {
		t.keep()
	}
	old := c.ids()
	c.thin = (loses(d.fate) || loses(d.then)) && len(c.tables) > 1
	c.disturb(ctx, d)
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
	if d.hurry && err == nil && len(c.ids()) > len(old) {
		c.giveBack()
		time.Sleep(lateness + ttl/2 - time.Since(begin)) // what was late has arrived
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
	c.forget = false // whoever lost its lease knows by now
	c.mu.Unlock()
	if !d.closes {
		c.truth("later")
	}
	if mild(d) && !ended {
		c.kept()
	}
	if err != nil && !e.keeps || ended && !e.keeps {
		c.absent("later", old...)
	}
	c.succeed(e)
}

// mild reports whether a disturbance costs no lease: one message meets with it.
func mild(d disturbance) bool {
	return slices.Contains([]fate{lost, unanswered, late, doubled, slow, stuck}, d.fate) && d.lasts == 0 && d.then == arrives && !d.closes
}

// kept judges that whoever has not given its lease back has it (P3).
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

// disturb has the fault begin.
func (c *cast) disturb(ctx context.Context, d disturbance) {
	w := c.weather
	w.arm(d.fate, d.at, d.lasts)
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
		case d.closes:
			c.wg.Go(func() {
				time.Sleep(slowness / 2)
				if err := c.a.Close(); err != nil {
					c.wrong("close: %v", err)
				}
			})
		}
		if (loses(d.fate) || loses(d.then)) && len(c.tables) == 1 { // a quorum forgets nothing with one node
			c.forget = true // before it does
		}
	}
}

// loses reports whether a store loses by a fate what it had acknowledged.
func loses(f fate) bool { return f == forgets || f == goesBack || f == failsOver }

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

// judge judges the answer of an entry.
func (c *cast) judge(e *entry, d disturbance, err error, took time.Duration, old []string) {
	bound := time.Minute
	switch {
	case d.before:
		bound = 0
	case d.during, d.closes:
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
			c.absent("it said that the lease has ended")
		}
	case errors.Is(err, leasehold.ErrUnavailable) && !errors.Is(err, leasehold.ErrUnknown):
		if !e.keeps {
			c.absent(fmt.Sprintf("definite (%v)", err), old...)
		}
	case c.explains(e, d, err):
	default:
		c.wrong("nobody explains the error %v", err)
	}
}

// explains reports whether the disturbance is a reason for an error.
func (c *cast) explains(e *entry, d disturbance, err error) bool {
	ended := d.before || d.during
	switch {
	case e.reads && strings.HasPrefix(e.of[0], "GET "):
		return true // the HTTP client of the test has errors of its own
	case errors.Is(err, leasehold.ErrUnknown):
		return !e.reads // a look changes nothing, so that nothing can be unknown
	case errors.Is(err, leasehold.ErrLost) && c.lying(): // and the other locks of several have ended with it
		return true
	case errors.Is(err, errPatience), errors.Is(err, leasehold.ErrContextEnded):
		return ended
	case errors.Is(err, leasehold.ErrClosed), errors.Is(err, leasehold.ErrReleased):
		return d.closes
	case errors.Is(err, leasehold.ErrLost), errors.Is(err, leasehold.ErrNotHeld):
		// a lease that is without its store for as long as it lives
		return c.lying() || ended || d.closes || e.mayLose || d.lasts > d.ttl() || d.fate == frozen || d.fate == onEdge || d.fate == beforeEdge
	case errors.Is(err, context.Canceled): // but for the last renewal of a lease that was lost
		return ended
	case errors.Is(err, leasehold.ErrHeld):
		return e.waits || errors.Is(err, errPatience)
	}
	return false
}

// succeed has the first client give everything back, and the second one take the lock
// after it.
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
