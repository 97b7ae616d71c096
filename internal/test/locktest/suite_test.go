// Package locktest tests the library over a store against the usual mistakes of lock libraries:
// in virtual time over stores in memory, and the rest over real stores. It is for the library as
// drivertest is for a store.
package locktest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// Store is the store of one case.
type Store struct {
	// Open returns another driver of the store, as another process would have one.
	Open func(tb testing.TB) driver.Driver
	// Flush removes everything from the store; nil if the store never forgets.
	Flush func()
	// Ends checks that the records which remain after all leases and waits expire; it may be nil.
	Ends func(tb testing.TB)
	// real is set if the store runs in real time: then no bound below a minute holds.
	real bool
}

// row is one case.
type row struct {
	name string
	run  func(l *lab)
}

// all selects every case.
func all(string) bool { return true }

// run plays the selected cases in virtual time, each in a bubble and on a store of its own.
func run(t *testing.T, start func(testing.TB) Store, selected func(name string) bool) {
	t.Helper()
	t.Parallel()
	for _, r := range rows() {
		if selected(r.name) {
			t.Run(r.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playCase(t, start(t), r) })
			})
		}
	}
}

// playCase plays one case. When its clients are closed, the store must be empty (P9).
func playCase(tb testing.TB, s Store, r row) {
	tb.Cleanup(func() {
		if !tb.Failed() {
			nothingLeft(tb, s)
		}
	})
	r.run(&lab{TB: tb, store: s, key: r.name})
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

// nothingLeft checks that the store is empty once all leases have expired.
func nothingLeft(tb testing.TB, s Store) {
	d := s.Open(tb)
	defer d.Close()
	store, ok := driver.As[driver.Inspector](d)
	if !ok {
		tb.Fatal("the store cannot be listed")
	}
	var keys []string
	eventually(tb, patience, func() bool {
		var err error
		keys, _, err = store.List(context.Background(), "", "")
		return err == nil && len(keys) == 0
	}, func() string { return fmt.Sprintf("keys left: %q", keys) })
	if s.Ends != nil {
		s.Ends(tb)
	}
}

// lab is the environment of one case.
type lab struct {
	testing.TB
	store Store
	key   string
}

// on returns the lab of another key.
func (l *lab) on(name string) *lab { return &lab{TB: l.TB, store: l.store, key: l.key + "/" + name} }

// life is the time to live of leases that expire in a case.
const life = time.Second

// kept is the time to live of leases that are renewed in a case.
const kept = 3 * life

// patience bounds steps without a bound of their own, such as the start of a wait. In real time a
// longer step counts as hanging.
const patience = time.Minute

// lag is the time of a message to a store in a bubble, and of an answer. Without it all steps
// between two waits happen at one moment.
const lag = 100 * time.Microsecond

// clean is the time within which the records of released locks are removed. A release that has to
// be repeated takes seconds; a forgotten lock stays for its TTL, half a minute.
const clean = 10 * time.Second

// process returns a driver of the store as another process has one.
func (l *lab) process() *mortal {
	if l.store.real {
		return newMortal(l.store.Open(l.TB), 0)
	}
	return newMortal(l.store.Open(l.TB), lag)
}

// client returns a client of the store as another process, which ends with the
// test, and the driver in between.
func (l *lab) client(opts ...leasehold.Option) (*leasehold.Client, *mortal) {
	l.Helper()
	m := l.process()
	c, err := leasehold.New(m, opts...)
	l.must(err)
	l.Cleanup(func() {
		if err := c.Close(); err != nil {
			l.Errorf("close: %v", err)
		}
	})
	return c, m
}

// lock takes the mutex, which has to be free or become so.
func (l *lab) lock(c *leasehold.Client, opts ...leasehold.Option) *leasehold.Lease {
	l.Helper()
	return l.enter(mutex, c, opts...)
}

// enter is lock for any kind of lock.
func (l *lab) enter(u use, c *leasehold.Client, opts ...leasehold.Option) *leasehold.Lease {
	l.Helper()
	lease, err := u(c, l.key, append(opts, leasehold.WithMaxWait(patience))...).lock(context.Background())
	if err != nil {
		l.Fatalf("lock: %v", err)
	}
	return lease
}

// refused tries once to take the lock, and expects the given errors.
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

// outcome is the result of a call to Lock, and the time of its return.
type outcome struct {
	name  string
	lease *leasehold.Lease
	err   error
	at    time.Time
}

// await starts a waiter and returns when the store has queued it and the waiter has received its
// place: only then does it have proof that the lock is held.
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
		l.Fatalf("%s is queued and has not received its place", name)
	}
}

// queue starts waiters one after the other, and returns where their outcomes arrive.
func (l *lab) queue(ctx context.Context, u use, c *leasehold.Client, names ...string) chan outcome {
	l.Helper()
	got := make(chan outcome, len(names))
	for _, name := range names {
		l.await(ctx, u, c, name, got)
	}
	return got
}

// queued returns how many wait.
func (l *lab) queued(c *leasehold.Client) int {
	l.Helper()
	return len(l.picture(c).Waiters)
}

// picture returns the snapshot of the lock.
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

// wantFree checks that the lock soon has no holders and no waiters. A failed inspection is
// repeated.
func (l *lab) wantFree(within time.Duration) {
	l.Helper()
	c, _ := l.client()
	var left driver.Snapshot
	end := time.Now().Add(patience)
	eventually(l.TB, within, func() bool {
		snap, err := c.Inspect(context.Background(), l.key)
		for ; err != nil; snap, err = c.Inspect(context.Background(), l.key) {
			if time.Now().After(end) {
				l.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		left = snap
		return len(snap.Holders) == 0 && len(snap.Waiters) == 0
	}, func() string { return fmt.Sprintf("left behind: %+v", left) })
}

// receive returns the next outcome.
func (l *lab) receive(from <-chan outcome, within time.Duration) outcome {
	l.Helper()
	select {
	case o := <-from:
		return o
	case <-time.After(within):
		l.Fatalf("no call got the lock in %v", within)
		return outcome{}
	}
}

// entered returns the lease of the next outcome, which must be a grant.
func (l *lab) entered(from <-chan outcome, within time.Duration) *leasehold.Lease {
	l.Helper()
	o := l.receive(from, within)
	l.must(o.err)
	return o.lease
}

// inOrder expects the named outcomes, as many at a time as can hold the lock together. Each batch
// arrives within the given time after the release of its predecessor.
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
		// They return in any order; the tokens have the order of the store.
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

// eventually polls until ok returns true, for states that cause no event.
func eventually(tb testing.TB, within time.Duration, ok func() bool, what func() string) {
	tb.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if !time.Now().Before(end) {
			tb.Fatalf("after %v: %s", within, strings.TrimSpace(what()))
		}
	}
}
