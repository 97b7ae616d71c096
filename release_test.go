package leasehold_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// How leases end.

func TestRelease_L1_ExpiredLeaseLeavesTheNewHolderAlone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, d := open(t, store, leasehold.WithTTL(ttl))
		b, _ := open(t, store)
		l := lock(t, a, "k")
		d.on(renew, 0, fails)
		time.Sleep(ttl)
		next := lock(t, b, "k")
		wantErr(t, l.Release(), leasehold.ErrLost)
		wantErr(t, l.Extend(t.Context(), ttl), leasehold.ErrNotHeld)
		snap, _ := store.Inspect(t.Context(), "k")
		if len(snap.Holders) != 1 || snap.Holders[0].ID != next.ID() || next.Token() <= l.Token() {
			t.Errorf("tokens %d, %d; store: %+v", l.Token(), next.Token(), snap)
		}
	})
}

func TestRelease_L1_StoreThatForgotTheLeaseIsToldAsLoss(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		l := lock(t, c, "k")
		if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()}); err != nil {
			t.Fatal(err)
		}
		wantErr(t, l.Release(), leasehold.ErrLost)
	})
}

func TestRelease_L3_LostReplyIsRepeatedAndTheNextHolderSurvives(t *testing.T) {
	for _, waits := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, d := open(t, store)
			b, _ := open(t, store)
			l := lock(t, a, "k")
			got := make(chan *leasehold.Lease, 1)
			if waits {
				go func() {
					next, err := b.Mutex("k").Lock(context.Background())
					if err != nil {
						t.Error(err)
					}
					got <- next
				}()
				synctest.Wait()
			}
			d.on(release, 2, loses)
			if err := l.Release(); err != nil {
				t.Errorf("release whose reply was lost: %v", err)
			}
			if n := d.count(release); n != 3 {
				t.Errorf("%d tries, want 3", n)
			}
			if waits {
				next := <-got
				time.Sleep(time.Hour)
				if next.State() != leasehold.Held {
					t.Errorf("the next holder is %v", next.State())
				}
			}
		})
	}
}

func TestRelease_IsIdempotentAndConcurrent(t *testing.T) {
	store := memdriver.New() // in real time: a sync.Once does not wait durably
	c, d := open(t, store)
	d.on(release, 0, fault{late: 20 * time.Millisecond})
	l := lock(t, c, "k")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			wantFree(t, store, "k") // whoever returns, it is free
		})
	}
	wg.Wait()
	if n := d.count(release); n != 1 {
		t.Errorf("%d releases", n)
	}
	if l.State() != leasehold.Released || !errors.Is(context.Cause(l.Context()), leasehold.ErrReleased) {
		t.Errorf("%v, %v", l.State(), context.Cause(l.Context()))
	}
	wantErr(t, l.Extend(t.Context(), ttl), leasehold.ErrNotHeld, leasehold.ErrReleased)
}

func TestRelease_IsBoundedAndSaysUnknown(t *testing.T) {
	for name, f := range map[string]fault{"hangs": hangs, "fails": fails} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithReleaseTimeout(3*time.Second))
				l := lock(t, c, "k")
				d.on(release, 0, f)
				start := time.Now()
				err := l.Release()
				wantErr(t, err, leasehold.ErrUnknown)
				if errors.Is(err, leasehold.ErrLost) {
					t.Errorf("%v says lost, but nobody knows", err)
				}
				if got := time.Since(start); got > 3*time.Second {
					t.Errorf("took %v", got)
				}
				if n := d.count(release); n < 3 {
					t.Errorf("%d tries", n)
				}
				if l.State() != leasehold.Released {
					t.Errorf("state %v", l.State())
				}
			})
		})
	}
}

func TestRelease_AfterAnUnconfirmedRenewalStillFrees(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		d.on(renew, 0, fails)
		time.Sleep(ttl / 2)
		if l.State() != leasehold.Unconfirmed {
			t.Fatalf("state %v", l.State())
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		wantFree(t, store, "k")
	})
}

func TestRelease_DuringAHungRenewalIsNeitherLossNorRevival(t *testing.T) {
	for name, f := range map[string]fault{"before": {delay: time.Second}, "after": {late: time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(ttl))
				l := lock(t, c, "k")
				d.on(renew, 1, f)
				time.Sleep(ttl/3 + 500*time.Millisecond)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				wantFree(t, store, "k")
				if s := c.Stats(); s.Lost != 0 || s.Released != 1 || s.Held != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// L9: 10 000 releases at the instant of a renewal.
func TestRelease_L9_RacesWithRenewalTenThousandTimes(t *testing.T) {
	store := memdriver.New()
	d := newFault(store)
	c, err := leasehold.New(d, leasehold.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			m := c.Mutex(string(rune('a' + g)))
			for range 10_000 / 8 {
				l, err := m.TryLock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				extended := make(chan error, 1)
				go func() { extended <- l.Extend(context.Background(), time.Minute) }()
				if err := l.Release(); err != nil {
					t.Errorf("release: %v", err)
				}
				if err := <-extended; err != nil && !errors.Is(err, leasehold.ErrReleased) {
					t.Errorf("extend: %v", err)
				}
			}
		})
	}
	wg.Wait()
	keys, _, err := store.List(context.Background(), "", "")
	if s := c.Stats(); s.Lost != 0 || s.Held != 0 || s.Released != 10_000 || len(keys) != 0 || err != nil {
		t.Errorf("%+v, keys left: %q, %v", s, keys, err)
	}
}

func TestLease_L12_NewLeaseAfterTheLastIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		for i := range 100 {
			l := lock(t, c, "k")
			if i%3 == 0 {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			}
			if i == 99 {
				time.Sleep(time.Hour)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// lastFirst is a context that tells its end last to those who follow it first. The
// contexts of the standard library tell it in any order.
type lastFirst struct {
	context.Context
	mu      sync.Mutex
	follows []func()
	done    chan struct{}
	err     error
}

func (c *lastFirst) Done() <-chan struct{} { return c.done }

func (c *lastFirst) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is what the context package asks a context of somebody else for.
func (c *lastFirst) AfterFunc(f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follows = append(c.follows, f)
	return func() bool { return false }
}

func (c *lastFirst) end() {
	c.mu.Lock()
	c.err = context.Canceled
	close(c.done)
	c.mu.Unlock()
	for _, f := range slices.Backward(c.follows) {
		go f()
		synctest.Wait()
	}
}

func TestLease_L13_ParentsEndIsNoticedInWhateverOrderItIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		parent := &lastFirst{Context: t.Context(), done: make(chan struct{})}
		l, err := c.Mutex("k").Lock(parent)
		if err != nil {
			t.Fatal(err)
		}
		parent.end()
		wantErr(t, context.Cause(l.Context()), context.Canceled)
		if l.State() != leasehold.ContextEnded {
			t.Errorf("state %v", l.State())
		}
		giveBack(t, l)
		wantFree(t, store, "k")
	})
}

func TestState_TellsAllEndsApart(t *testing.T) {
	type scene struct {
		store  *memdriver.Driver
		faults *faultDriver
		client *leasehold.Client
		lease  *leasehold.Lease
		cancel context.CancelFunc
	}
	for want, end := range map[leasehold.State]func(*scene) error{
		leasehold.Released:       func(s *scene) error { return s.lease.Release() },
		leasehold.ContextEnded:   func(s *scene) error { s.cancel(); return nil },
		leasehold.ClientClosed:   func(s *scene) error { return s.client.Close() },
		leasehold.MaxHoldReached: func(*scene) error { return nil },
		leasehold.Lost: func(s *scene) error {
			_, err := s.store.Break(context.Background(), "k", s.lease.ID(), "stuck")
			return err
		},
		leasehold.Unconfirmed: func(s *scene) error { s.faults.on(renew, 0, fails); return nil },
	} {
		t.Run(want.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithMaxHold(10*ttl))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				l, err := c.Mutex("k").Lock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				inner, err := c.Mutex("k").Lock(l.Context())
				if err != nil {
					t.Fatal(err)
				}
				if l.State() != leasehold.Held || !l.State().Live() {
					t.Errorf("state %v", l.State())
				}
				if err := end(&scene{store, d, c, l, cancel}); err != nil {
					t.Fatal(err)
				}
				if want == leasehold.MaxHoldReached {
					<-l.Context().Done()
				}
				if want == leasehold.Lost || want == leasehold.Unconfirmed {
					time.Sleep(ttl / 2)
				}
				if l.State() != want || l.State().Live() != (want == leasehold.Unconfirmed) {
					t.Errorf("state %v, live %t", l.State(), l.State().Live())
				}
				// One that re-entered ends with the same, but a release is that of one only.
				if want == leasehold.Released {
					want = leasehold.ContextEnded
				}
				if inner.State() != want {
					t.Errorf("state of the inner one %v", inner.State())
				}
				synctest.Wait() // when all has been told nothing is different
				if inner.State() != want {
					t.Errorf("then %v", inner.State())
				}
				d.heal()
				_ = inner.Release()
			})
		})
	}
}

type valueKey struct{}

func TestLease_L14_ParentsValuesAndDeadlineAreVisible(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, 42), time.Minute)
		defer cancel()
		l, err := c.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := ctx.Deadline()
		if got, ok := l.Context().Deadline(); !ok || !got.Equal(want) || l.Context().Value(valueKey{}) != 42 {
			t.Errorf("deadline %v, value %v", got, l.Context().Value(valueKey{}))
		}
		child, done := context.WithCancel(l.Context())
		defer done()
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		<-child.Done()
		wantErr(t, context.Cause(child), leasehold.ErrReleased)
	})
}

func TestLease_L15_WallClockStepsChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		// The only wall clock that is sent is for people to read.
		c, d := open(t, store)
		l := lock(t, c, "k")
		req := d.seen(acquire)[0].req
		req.ID, req.Since = "other", req.Since.Add(10*time.Minute)
		reply, err := store.Acquire(t.Context(), req)
		if err != nil || reply.State != driver.Busy || reply.RetryAfter > 30*time.Second {
			t.Errorf("%+v, %v", reply, err)
		}
		if l.Remaining() > 30*time.Second {
			t.Errorf("remaining %v", l.Remaining())
		}
	})
}

// TestLease_LostAndNeverReleasedIsNotRememberedByItsParent also has the parent
// end while the lease is being made.
func TestLease_LostAndNeverReleasedIsNotRememberedByItsParent(t *testing.T) {
	store := &nowhere{}
	c, err := leasehold.New(store, leasehold.WithTTL(10*time.Millisecond), leasehold.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	collected := make(chan struct{})
	func() {
		l, err := c.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(l, func(struct{}) { close(collected) }, struct{}{})
		<-l.Context().Done()
	}()
	for end := time.Now().Add(10 * time.Second); ; runtime.GC() {
		select {
		case <-collected:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("a lease that was lost is kept in memory")
		}
	}
}

func TestLease_ParentThatEndsDuringTheGrantReleases(t *testing.T) {
	store := memdriver.New()
	c, d := open(t, store)
	d.on(acquire, 0, fault{late: time.Millisecond})
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond+time.Duration(i)*time.Microsecond, cancel)
		l, err := c.Mutex("k").Lock(ctx)
		if err == nil {
			<-l.Context().Done()
			giveBack(t, l)
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Microsecond) {
			if snap, _ := store.Inspect(t.Context(), "k"); len(snap.Holders) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it is still held")
			}
		}
		cancel()
	}
}
