// Package locktest tries what lock libraries get wrong with the library over a
// real store, in real time. It is to the library what drivertest is to a store.
package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// Config is what [Run] needs to know of a store.
type Config struct {
	// Open returns another driver of the same store, the way another process
	// would have one.
	Open func(tb testing.TB) driver.Driver
	// Flush makes the store forget everything; nil if it never does.
	Flush func(tb testing.TB)
	// Only tells which cases the store can play; nil if it can play all.
	Only func(name string) bool
	// OneIn is of how many cases -short plays one, drawn by lot: all if it is not set. It
	// is for a store that shares nearly all of its code with one on which all are played.
	OneIn uint64
	// Ends checks that whatever is still in the store ends by itself, beside
	// that listing finds nothing; it may be nil.
	Ends func(tb testing.TB)
}

// row is one case. Rows run side by side, each with keys of its own.
type row struct {
	name string
	run  func(l *lab)
}

// Run plays every case on the store.
func Run(t *testing.T, c Config) {
	t.Helper()
	drawn := c.lot(t)
	p := startPulse(t, c)
	t.Run("cases", func(t *testing.T) {
		for _, r := range rows() {
			if c.Only != nil && !c.Only(r.name) || !drawn() {
				continue
			}
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				play(t, c, r, p)
			})
		}
	})
	p.end()
	t.Run("P9_NothingIsLeft", func(t *testing.T) { nothingLeft(t, c) })
	// By itself, since it empties the store.
	if c.Flush != nil {
		p := startPulse(t, c)
		defer p.end()
		t.Run("R2_HoldersOfAStoreThatForgetsLoseInTime", func(t *testing.T) {
			play(t, c, row{"forgotten", forgotten}, p)
		})
	}
}

var seed = flag.Uint64("seed", 0, "draw the cases that -short plays from this one")

// lot returns what tells of one case after the other whether it is played.
func (c Config) lot(t *testing.T) func() bool {
	t.Helper()
	if !testing.Short() || c.OneIn < 2 {
		return func() bool { return true }
	}
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("one case in %d is played, drawn from -seed=%d; make test-long plays all", c.OneIn, from)
	rng := rand.New(rand.NewPCG(from, 0)) //nolint:gosec // to be repeated
	return func() bool { return rng.Uint64N(c.OneIn) == 0 }
}

func rows() []row {
	var all []row
	for _, some := range [][]row{leaseRows, waitRows, reentryRows, sharedRows, semaphoreRows, severalRows, roomRows, refusalRows} {
		all = append(all, some...)
	}
	return append(all,
		row{"W1_NeverTwoHoldersAndTokensRise", crowd},
		row{"P6_HundredWaitersAreServedEvenlyAndInOrder", evenness},
	)
}

// nothingLeft waits for whatever expires and looks what stays.
func nothingLeft(t *testing.T, c Config) {
	d := c.Open(t)
	defer d.Close()
	store, ok := driver.As[driver.Inspector](d)
	if !ok {
		t.Skip("the store cannot be listed")
	}
	var keys []string
	eventually(t, 2*patience, func() bool {
		var err error
		keys, _, err = store.List(context.Background(), "", "")
		return err == nil && len(keys) == 0
	}, func() string { return fmt.Sprintf("keys left: %q", keys) })
	if c.Ends != nil {
		c.Ends(t)
	}
}

// lab is where one case is played.
type lab struct {
	testing.TB
	config Config
	key    string
}

// on is the lab of another key.
func (l *lab) on(name string) *lab { return &lab{TB: l.TB, config: l.config, key: l.key + "/" + name} }

// life is the time to live of leases that a case lets expire.
const life = time.Second

// kept is that of leases that a case needs renewed. The first renewal may have to connect,
// which takes a server that is busy with twelve cases most of a second.
const kept = 3 * life

// patience bounds what has no bound of its own, such as the start of a wait.
const patience = 30 * time.Second

// clean is within which nothing is left of what was given back. A release that has to
// be repeated takes seconds; what is forgotten stays for its TTL, half a minute.
const clean = 10 * time.Second

// client returns a client of the store as another process, which ends with the
// test, and the driver in between.
func (l *lab) client(opts ...leasehold.Option) (*leasehold.Client, *mortal) {
	l.Helper()
	m := &mortal{Driver: l.config.Open(l.TB)}
	c, err := leasehold.New(m.as(), opts...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := c.Close(); err != nil {
			l.Errorf("close: %v", err)
		}
	})
	return c, m
}

// stranger is a client that only looks.
func (l *lab) stranger() *leasehold.Client {
	l.Helper()
	c, _ := l.client()
	return c
}

// lock takes the mutex, which has to be free or become so.
func (l *lab) lock(c *leasehold.Client, opts ...leasehold.Option) *leasehold.Lease {
	l.Helper()
	return l.enter(mutex, c, opts...)
}

// enter is lock for any kind.
func (l *lab) enter(u use, c *leasehold.Client, opts ...leasehold.Option) *leasehold.Lease {
	l.Helper()
	lease, err := u(c, l.key, append(opts, leasehold.WithMaxWait(patience))...).lock(context.Background())
	if err != nil {
		l.Fatalf("lock: %v", err)
	}
	return lease
}

// refused asks once for what cannot be had.
func (l *lab) refused(u use, c *leasehold.Client, wants ...error) {
	l.Helper()
	lease, err := u(c, l.key).try(context.Background())
	if err == nil {
		l.Errorf("got in with token %d", lease.Token())
		l.release(lease)
	}
	l.wantErr(err, wants...)
}

func (l *lab) release(leases ...leasehold.AnyLease) {
	l.Helper()
	for _, lease := range leases {
		if err := lease.Release(); err != nil {
			l.Errorf("release: %v", err)
		}
	}
}

func (l *lab) releaseAll(leases []*leasehold.Lease) {
	l.Helper()
	for _, lease := range leases {
		l.release(lease)
	}
}

// outcome is what a call to Lock returned, and when.
type outcome struct {
	name  string
	lease *leasehold.Lease
	err   error
	at    time.Time
}

// await starts a waiter and returns when the store has queued it and it has been
// told so: only then can it know that the lock is held.
func (l *lab) await(ctx context.Context, u use, c *leasehold.Client, name string, to chan<- outcome) {
	l.Helper()
	before := l.queued(c)
	told := make(chan struct{})
	once := sync.OnceFunc(func() { close(told) })
	ctx = leasehold.ObserveWait(ctx, func(leasehold.WaitEvent) { once() })
	go func() {
		lease, err := u(c, l.key).lock(ctx)
		to <- outcome{name, lease, err, time.Now()}
	}()
	eventually(l.TB, patience, func() bool { return l.queued(c) > before },
		func() string { return fmt.Sprintf("%s is not queued", name) })
	select {
	case <-told:
	case <-time.After(patience):
		l.Fatalf("%s is queued and has not been told", name)
	}
}

// queued returns how many wait.
func (l *lab) queued(c *leasehold.Client) int {
	l.Helper()
	return len(l.picture(c).Waiters)
}

// picture is what the store says of the lock.
func (l *lab) picture(c *leasehold.Client) driver.Snapshot {
	l.Helper()
	snap, err := c.Inspect(context.Background(), l.key)
	l.must(err)
	return snap
}

// must ends the case if err is not nil.
func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// wantFree checks that nobody is inside or waits, soon.
func (l *lab) wantFree(within time.Duration) {
	l.Helper()
	c, _ := l.client()
	var snap driver.Snapshot
	var err error
	answered := time.Now().Add(slack) // a look that is not answered says nothing
	eventually(l.TB, within, func() bool {
		for {
			if snap, err = c.Inspect(context.Background(), l.key); err == nil || time.Now().After(answered) {
				return err == nil && len(snap.Holders) == 0 && len(snap.Waiters) == 0
			}
		}
	}, func() string { return fmt.Sprintf("left behind: %+v, %v", snap, err) })
}

// receive returns the next outcome.
func (l *lab) receive(from <-chan outcome, within time.Duration) outcome {
	l.Helper()
	select {
	case o := <-from:
		return o
	case <-time.After(within):
		l.Fatalf("nobody got the lock in %v", within)
		return outcome{}
	}
}

// inOrder expects the named outcomes, as many at a time as have room together,
// each batch within the given time after the one before has released.
func (l *lab) inOrder(k kind, from <-chan outcome, within time.Duration, names ...string) {
	l.Helper()
	for batch := range slices.Chunk(names, min(k.together, len(names))) {
		var in []outcome
		for range batch {
			o := l.receive(from, within)
			if o.err != nil {
				l.Fatalf("%s, of %q: %v", o.name, batch, o.err)
			}
			in = append(in, o)
		}
		// They are told side by side; the tokens say who came first.
		slices.SortFunc(in, func(a, b outcome) int { return cmp.Compare(a.lease.Token(), b.lease.Token()) })
		for i, o := range in {
			if o.name != batch[i] {
				l.Errorf("%s entered where %s should have", o.name, batch[i])
			}
		}
		for _, o := range in {
			l.release(o.lease)
		}
	}
}

// wantErr checks that err matches all that are wanted.
func (l *lab) wantErr(err error, wants ...error) {
	l.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			l.Errorf("error %q does not match %q", err, want)
		}
	}
}

// ended waits for the end of a lease, with a bound.
func (l *lab) ended(lease interface {
	leasehold.AnyLease
	State() leasehold.State
}, within time.Duration) {
	l.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(within):
		l.Fatalf("the lease is still %v after %v", lease.State(), within)
	}
}

// eventually looks until ok, which is told by the store and sends no event.
func eventually(tb testing.TB, within time.Duration, ok func() bool, what func() string) {
	tb.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("after %v: %s", within, strings.TrimSpace(what()))
		}
	}
}
