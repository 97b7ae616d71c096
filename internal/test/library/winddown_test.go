package library_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// The tests of this file check a lock after the context of its work has ended: by the end of the
// context that Lock was given, or at the maximum.

// ends are the causes by which the context of a lease ends after a minute.
var ends = map[string]struct {
	opts  []leasehold.Option
	state leasehold.State
	cause error
}{
	"by its parent":    {nil, leasehold.ContextEnded, context.Canceled},
	"at its maximum":   {[]leasehold.Option{leasehold.WithMaxHold(time.Minute)}, leasehold.MaxHoldReached, leasehold.ErrMaxHold},
	"without renewals": {[]leasehold.Option{leasehold.WithoutRenewal(), leasehold.WithTTL(time.Hour)}, leasehold.ContextEnded, context.Canceled},
}

// afterItsEnd calls then with a lease whose context has just ended.
func afterItsEnd(t *testing.T, then func(t *testing.T, store *memdriver.Driver, d *faultDriver, c *leasehold.Client, l *leasehold.Lease)) {
	for name, end := range ends {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, append([]leasehold.Option{leasehold.WithTTL(ttl)}, end.opts...)...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := must(t)(c.Mutex("k").Lock(ctx))
			if end.state == leasehold.ContextEnded {
				time.AfterFunc(time.Minute, cancel)
			}
			<-l.Context().Done()
			synctest.Wait()
			if got := context.Cause(l.Context()); !errors.Is(got, end.cause) || l.State() != end.state {
				t.Fatalf("state %v, cause %v", l.State(), got)
			}
			then(t, store, d, c, l)
		})
	}
}

// TestWindDown_L13_KeepsTheLockUntilRelease: the work ends before the next holder begins, and
// Release returns that it was protected to its end.
func TestWindDown_L13_KeepsTheLockUntilRelease(t *testing.T) {
	afterItsEnd(t, func(t *testing.T, store *memdriver.Driver, _ *faultDriver, c *leasehold.Client, l *leasehold.Lease) {
		next, _ := open(t, store)
		all := queueUp(t, next, 1)
		time.Sleep(ttl * 9 / 10) // the rest of the work
		all.none()
		before := l.State()
		giveBack(t, l)
		giveBack(t, all.served(0))
		if l.State() != before {
			t.Errorf("state %v, and %v after the release", before, l.State())
		}
		if s := c.Stats(); s.Lost != 0 || s.Released != 1 {
			t.Errorf("%+v, want one that was released", s)
		}
	})
}

// TestWindDown_RenewsOnce, when a renewal is due. A Release that is forgotten costs one TTL from then
// on, and is a loss that names the end of the context.
func TestWindDown_RenewsOnce(t *testing.T) {
	afterItsEnd(t, func(t *testing.T, store *memdriver.Driver, d *faultDriver, c *leasehold.Client, l *leasehold.Lease) {
		want, first, last := 1, ttl, ttl*4/3+ttl/10
		if left := time.Until(l.Deadline()); left > ttl { // without renewals
			want, first, last = 0, left, left+time.Minute
		}
		renewals, start := d.count(renew), time.Now()
		next, _ := open(t, store)
		must(t)(next.Mutex("k").Lock(t.Context()))
		if took := time.Since(start); took < first || took > last {
			t.Errorf("the lock was free after %v, want %v to %v", took, first, last)
		}
		if n := d.count(renew) - renewals; n != want {
			t.Errorf("%d renewals after the end of the context, want %d", n, want)
		}
		if l.State() != leasehold.Lost {
			t.Errorf("state %v", l.State())
		}
		err := l.Release()
		wantErr(t, err, leasehold.ErrLost)
		if !strings.Contains(err.Error(), "its context had ended") {
			t.Error(err)
		}
		if s := c.Stats(); s.Lost != 1 {
			t.Errorf("%+v, want one that was lost", s)
		}
	})
}

// TestWindDown_ReentryAtTheMaximum: a call that re-enters in the moment of WithMaxHold does not make
// the lease last longer.
func TestWindDown_ReentryAtTheMaximum(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithMaxHold(time.Minute))
		for range 200 {
			l := lock(t, c, "k")
			for range 3 {
				time.AfterFunc(time.Minute, func() {
					_, _ = c.Mutex("k").Lock(context.WithoutCancel(l.Context()))
				})
			}
			time.Sleep(time.Minute + 2*ttl)
			if wantFree(t, store, "k"); t.Failed() {
				return
			}
		}
	})
}

// TestWindDown_StateIsThatOfTheCause, also if the context of Lock ends in the moment of WithMaxHold.
func TestWindDown_StateIsThatOfTheCause(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithMaxHold(time.Minute))
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			l := must(t)(c.Mutex("k").Lock(ctx))
			<-l.Context().Done()
			synctest.Wait()
			want := leasehold.ContextEnded
			if errors.Is(context.Cause(l.Context()), leasehold.ErrMaxHold) {
				want = leasehold.MaxHoldReached
			}
			before := l.State()
			giveBack(t, l)
			if before != want || l.State() != want {
				t.Fatalf("state %v, and %v after the release: %v", before, l.State(), context.Cause(l.Context()))
			}
		}
	})
}

// TestWindDown_AnOuterMaximumIsTheEndOfAContext, also when the lock's own maximum comes later.
func TestWindDown_AnOuterMaximumIsTheEndOfAContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		reason := ""
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		outer := must(t)(c.Mutex("a", leasehold.WithMaxHold(ttl)).Lock(t.Context()))
		l := must(t)(c.Mutex("b", leasehold.WithMaxHold(ttl*4/3), leasehold.WithObserver(leasehold.Observer{
			Ended: func(_ context.Context, e leasehold.EndedInfo) { reason = e.Reason() },
		})).Lock(outer.Context()))
		time.Sleep(ttl * 7 / 6)
		before := l.State()
		time.Sleep(ttl / 3)
		between := l.State()
		giveBack(t, l, outer)
		for _, s := range []leasehold.State{before, between, l.State()} {
			if s != leasehold.ContextEnded || reason != "context" {
				t.Errorf("state %v, reason %q", s, reason)
			}
		}
		if outer.State() != leasehold.MaxHoldReached {
			t.Errorf("state %v of the outer lock", outer.State())
		}
	})
}

// TestWindDown_OfLeasesUnderEachOther: the contexts of the same lease are compared without a look
// at the clock, which would compare them again.
func TestWindDown_OfLeasesUnderEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithoutRenewal())
		ctx, cancel := context.WithCancel(t.Context())
		var all []*leasehold.Lease
		under := ctx
		for range 4 {
			l := must(t)(c.Mutex("k").Lock(under))
			all, under = append(all, l), l.Context()
		}
		cancel()
		time.Sleep(2 * ttl)
		for _, l := range all {
			wantErr(t, l.Release(), leasehold.ErrLost)
		}
	})
}

// slowContext is a context whose Done waits while it is stuck.
type slowContext struct {
	context.Context
	stuck atomic.Bool
}

func (c *slowContext) Done() <-chan struct{} {
	for c.stuck.Load() {
		time.Sleep(time.Second)
	}
	return c.Context.Done()
}

func TestWindDown_ASlowContextDelaysNoRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		slow := &slowContext{Context: t.Context()}
		l := must(t)(c.Mutex("a").Lock(slow))
		other := lock(t, c, "b")
		slow.stuck.Store(true)
		time.Sleep(3 * ttl)
		if l.State() != leasehold.Held || other.State() != leasehold.Held {
			t.Errorf("states %v and %v", l.State(), other.State())
		}
		slow.stuck.Store(false)
		giveBack(t, l, other)
	})
}

// TestWindDown_LastRenewalIsRepeated until it is answered.
func TestWindDown_LastRenewalIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		l := must(t)(c.Mutex("k").Lock(ctx))
		time.Sleep(ttl / 4)
		d.on(renew, 3, fails)
		cancel()
		time.Sleep(ttl / 2)
		if left := time.Until(l.Deadline()); left < ttl/2 {
			t.Errorf("%v are left", left)
		}
		giveBack(t, l)
	})
}

func TestWindDown_ExtendGivesMoreTime(t *testing.T) {
	afterItsEnd(t, func(t *testing.T, _ *memdriver.Driver, _ *faultDriver, _ *leasehold.Client, l *leasehold.Lease) {
		for range 10 {
			time.Sleep(ttl / 2)
			check(t, l.Extend(context.Background(), ttl))
		}
		giveBack(t, l)
	})
}

// TestWindDown_CloseAndBreakEndIt at once.
func TestWindDown_CloseAndBreakEndIt(t *testing.T) {
	afterItsEnd(t, func(t *testing.T, store *memdriver.Driver, _ *faultDriver, c *leasehold.Client, l *leasehold.Lease) {
		noErr(t, c.Close())
		wantFree(t, store, "k")
		wantErr(t, l.Release(), leasehold.ErrLost, leasehold.ErrClosed)
	})
	afterItsEnd(t, func(t *testing.T, store *memdriver.Driver, _ *faultDriver, c *leasehold.Client, l *leasehold.Lease) {
		breakIt(t, store, l)
		wantErr(t, l.Release(), leasehold.ErrLost, leasehold.ErrBroken)
		wantFree(t, store, "k")
	})
}

// TestWindDown_ReentryHoldsTheLock: a lease that re-entered under a context of its own is renewed
// until that context ends, and re-entry never waits for the own lease.
func TestWindDown_ReentryHoldsTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		outer := must(t)(c.Mutex("k").Lock(ctx))
		inner := func() *leasehold.Lease {
			t.Helper()
			l := must(t)(c.Mutex("k").Lock(context.WithoutCancel(outer.Context())))
			return l
		}
		before := inner()
		cancel()
		_, err := c.Mutex("k").Lock(outer.Context())
		wantErr(t, err, context.Canceled)
		time.Sleep(10 * ttl)
		if before.State() != leasehold.Held || outer.State() != leasehold.ContextEnded {
			t.Errorf("outer %v, inner %v", outer.State(), before.State())
		}
		giveBack(t, before)
		time.Sleep(ttl / 2)
		after := inner()
		time.Sleep(10 * ttl)
		if after.State() != leasehold.Held || after.Token() != outer.Token() {
			t.Errorf("state %v, token %d of %d", after.State(), after.Token(), outer.Token())
		}
		giveBack(t, after)
		renewals := d.count(renew)
		time.Sleep(ttl / 2)
		if n := d.count(renew) - renewals; n != 1 {
			t.Errorf("%d renewals after the last re-entry, want the last one", n)
		}
		giveBack(t, outer)
		wantFree(t, store, "k")
	})
}

// TestWindDown_AllKeepsTheOthers: when one lock of several is lost, the remaining locks stay
// closed until Release, since work may be under way.
func TestWindDown_AllKeepsTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		other, _ := open(t, store)
		for _, lost := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			whole, err := leasehold.All(c.Mutex("a"), c.Mutex("b"), c.Mutex("c")).Lock(ctx)
			check(t, err)
			if lost {
				if _, err := store.Break(t.Context(), "b", whole.Parts()[1].ID(), "stuck"); err != nil {
					t.Fatal(err)
				}
			} else {
				cancel()
			}
			<-whole.Context().Done()
			synctest.Wait()
			for _, key := range []string{"a", "c"} {
				_, err := other.Mutex(key).TryLock(t.Context())
				wantErr(t, err, leasehold.ErrHeld)
			}
			if err := whole.Release(); lost != errors.Is(err, leasehold.ErrBroken) || !lost && err != nil {
				t.Errorf("lost %t: %v", lost, err)
			}
			for _, key := range []string{"a", "b", "c"} {
				wantFree(t, store, key)
			}
			cancel()
		}
	})
}

// TestWindDown_DoAndLeadReleaseAfterTheirFunction: the result of the function does not matter.
func TestWindDown_DoAndLeadReleaseAfterTheirFunction(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		other, _ := open(t, store)
		for _, result := range []error{nil, context.Canceled} {
			work := func(cancel func()) func(ctx context.Context) error {
				return func(ctx context.Context) error {
					cancel()
					<-ctx.Done()
					time.Sleep(ttl / 2)
					_, err := other.Mutex("k").TryLock(context.Background())
					wantErr(t, err, leasehold.ErrHeld)
					return result
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			if err := leasehold.Do(ctx, c.Mutex("k"), work(cancel)); !errors.Is(err, result) || errors.Is(err, leasehold.ErrLost) {
				t.Errorf("Do: %v, want %v", err, result)
			}
			wantFree(t, store, "k")
			ctx, cancel = context.WithCancel(t.Context())
			f := work(cancel)
			err := c.Election("k", "").Lead(ctx, func(ctx context.Context, _ *leasehold.Lease) error { return f(ctx) })
			if !errors.Is(err, result) || errors.Is(err, leasehold.ErrLost) {
				t.Errorf("Lead: %v, want %v", err, result)
			}
			wantFree(t, store, "k")
		}
	})
}
