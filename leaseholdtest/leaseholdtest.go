// Package leaseholdtest helps to test programs that use locks. It returns a client of a store in
// memory, and a handle with which a test causes the faults of production: another process holds
// the lock, a lease is lost, the store is away, a reply is lost.
//
//	client, store := leaseholdtest.New(t)
//	release := store.Hold("orders/42") // as another process
//
// A program that takes a [leasehold.Locker] gets a lock that is free in one line:
//
//	worker := NewWorker(leaseholdtest.Locker(t))
//
// In a bubble of [testing/synctest] time is virtual: an outage of an hour takes no time,
// and leases run out by time.Sleep.
//
// Three whole tests are in [example_test.go] of this package: of an HTTP handler, of a loop
// that loses its lease, and of an election that loses its store.
//
// [example_test.go]: https://github.com/leasehold-go/leasehold/blob/main/leaseholdtest/example_test.go
package leaseholdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// Await is how long [Store.AwaitWaiters] and [Store.AwaitHeld] wait before they fail the
// test.
const Await = 10 * time.Second

// Store is a store in memory as a test sees it. It is safe for concurrent use.
type Store struct {
	tb    testing.TB
	inner *memdriver.Driver

	mu        sync.Mutex
	state     state
	back      chan struct{} // closed by the next Up
	drop      int           // replies that will be lost
	listeners []*listener
}

// state is the reaction of the store to requests.
type state int

const (
	up     state = iota
	down         // refuses connections
	frozen       // takes requests without answering
)

// New returns a client of a new store in memory, and the store. Both end with the test.
func New(tb testing.TB, opts ...leasehold.Option) (*leasehold.Client, *Store) {
	tb.Helper()
	s := &Store{tb: tb, inner: memdriver.New(), back: make(chan struct{})}
	tb.Cleanup(func() { _ = s.inner.Close() })
	return s.Client(opts...), s
}

// Locker returns a mutex of its own store. It ends with the test.
func Locker(tb testing.TB, opts ...leasehold.Option) *leasehold.Mutex {
	tb.Helper()
	c, _ := New(tb)
	return c.Mutex("lock", opts...)
}

// Client returns another client of the store, like that of another process. It is closed
// when the test ends, after the store has come back and loses no more replies.
func (s *Store) Client(opts ...leasehold.Option) *leasehold.Client {
	s.tb.Helper()
	d := intercept.New(s.inner.Join(), s.through)
	d.Split = true
	c, err := leasehold.New(&faulty{d, s}, opts...)
	if err != nil {
		s.tb.Fatalf("leaseholdtest: %v", err)
	}
	s.tb.Cleanup(func() {
		s.Up()
		s.DropReplies(0)
		if err := c.Close(); err != nil {
			s.tb.Errorf("leaseholdtest: close the client: %v", err)
		}
	})
	return c
}

// Hold takes the lock as another process, which keeps it until release is called or the
// test ends. It fails the test if the lock is held, and release does if the store does not
// answer. If the test has taken the lock away in between, by Lose, Break or a long outage,
// release has no effect, so that it can be deferred.
func (s *Store) Hold(key string, opts ...leasehold.Option) (release func()) {
	s.tb.Helper()
	opts = append([]leasehold.Option{leasehold.WithName("leaseholdtest")}, opts...)
	l, err := s.Client().Mutex(key, opts...).TryLock(context.Background())
	if err != nil {
		s.tb.Fatalf("leaseholdtest: hold %q: %v", key, err)
	}
	return sync.OnceFunc(func() {
		if err := l.Release(); err != nil && !errors.Is(err, leasehold.ErrLost) {
			s.tb.Errorf("leaseholdtest: release %q: %v", key, err)
		}
	})
}

// Lose takes the lock from all its holders, like a store that has lost its data. Their contexts
// end at once; the cause matches [leasehold.ErrLost]. It fails the test if the lock is not held.
func (s *Store) Lose(key string) {
	s.tb.Helper()
	for _, h := range s.holders(key) {
		if _, err := s.inner.Release(context.Background(), driver.Ref{Key: key, ID: h.ID}); err != nil {
			s.tb.Fatalf("leaseholdtest: lose %q: %v", key, err)
		}
		session.EndLocal(key, h.ID, fmt.Errorf("%w: by the test", leasehold.ErrLost))
	}
}

// Break takes the lock from all its holders, like an operator. Their contexts end at once, and
// the cause has the reason. It fails the test if the lock is not held.
func (s *Store) Break(key, reason string) {
	s.tb.Helper()
	for _, h := range s.holders(key) {
		if _, err := s.inner.Break(context.Background(), key, h.ID, reason); err != nil {
			s.tb.Fatalf("leaseholdtest: break %q: %v", key, err)
		}
		session.EndLocal(key, h.ID, session.Broken(reason))
	}
}

// Down makes the store refuse all requests until Up. They certainly have no effect.
func (s *Store) Down() { s.turn(down) }

// Freeze stops the store's answers until Up. Up answers the requests that wait then. Requests
// whose context ended before that never had an effect.
func (s *Store) Freeze() { s.turn(frozen) }

// Up ends Down and Freeze.
func (s *Store) Up() { s.turn(up) }

func (s *Store) turn(to state) {
	s.mu.Lock()
	s.state = to
	var listeners []*listener
	if to == up {
		close(s.back)
		s.back = make(chan struct{})
		listeners = slices.Clone(s.listeners)
	}
	s.mu.Unlock()
	for _, l := range listeners { // so that waiters ask again
		l.tell(driver.Hint{Kind: driver.HintResync})
	}
}

// DropReplies makes the store execute the next n requests that take, renew or release a lock,
// and lose its answers. A renewal of several leases is one request each. 0 or less
// ends that.
func (s *Store) DropReplies(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop = max(n, 0)
}

// Waiters returns how many calls wait for the lock in its queue.
func (s *Store) Waiters(key string) int {
	s.tb.Helper()
	return len(s.inspect(key).Waiters)
}

// Held reports whether the lock is held.
func (s *Store) Held(key string) bool {
	s.tb.Helper()
	return len(s.inspect(key).Holders) > 0
}

// AwaitWaiters returns when exactly n calls wait for the lock in its queue. It fails the
// test if that takes longer than [Await].
func (s *Store) AwaitWaiters(key string, n int) {
	s.tb.Helper()
	s.await(fmt.Sprintf("%d waiters for %q", n, key), func() bool { return s.Waiters(key) == n })
}

// AwaitHeld returns when the lock is held, or, if held is false, when it is not. It fails the
// test if that takes longer than [Await].
func (s *Store) AwaitHeld(key string, held bool) {
	s.tb.Helper()
	s.await(fmt.Sprintf("%q held: %v", key, held), func() bool { return s.Held(key) == held })
}

func (s *Store) await(what string, ok func() bool) {
	s.tb.Helper()
	for end := time.Now().Add(Await); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.tb.Fatalf("leaseholdtest: not within %v: %s", Await, what)
		}
	}
}

func (s *Store) inspect(key string) driver.Snapshot {
	s.tb.Helper()
	snap, err := s.inner.Inspect(context.Background(), key)
	if err != nil {
		s.tb.Fatalf("leaseholdtest: inspect %q: %v", key, err)
	}
	return snap
}

func (s *Store) holders(key string) []driver.Holder {
	s.tb.Helper()
	holders := s.inspect(key).Holders
	if len(holders) == 0 {
		s.tb.Fatalf("leaseholdtest: %q has no holder", key)
	}
	return holders
}
