package leasehold_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

func TestExtend_LastsFromItsSendingAndIsKeptUp(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		d.on(renew, 1, fault{late: time.Second})
		start := time.Now()
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		want := start.Add(time.Minute - 600*time.Millisecond - 2*time.Millisecond)
		if !l.Deadline().Equal(want) {
			t.Errorf("deadline %v, want %v", l.Deadline().Sub(start), want.Sub(start))
		}
		time.Sleep(time.Hour)
		if l.State() != leasehold.Held || l.Remaining() < 30*time.Second {
			t.Errorf("%v, %v left: it is to be renewed for the longer time", l.State(), l.Remaining())
		}
	})
}

func TestExtend_NeverShortens(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(time.Minute))
		l := lock(t, c, "k")
		before := l.Deadline()
		if err := l.Extend(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if l.Deadline().Before(before) {
			t.Errorf("the deadline came %v nearer", before.Sub(l.Deadline()))
		}
		snap, _ := store.Inspect(t.Context(), "k")
		if snap.Holders[0].Remaining < 59*time.Second {
			t.Errorf("the store keeps it for %v", snap.Holders[0].Remaining)
		}
	})
}

func TestExtend_WithoutRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithoutRenewal())
		l := lock(t, c, "k")
		time.Sleep(ttl / 2)
		if err := l.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-l.Context().Done()
		if got := time.Since(start); got != validity {
			t.Errorf("ended %v after the extension, want %v", got, validity)
		}
		if n := d.count(renew); n != 1 {
			t.Errorf("%d renewals, want the one that was asked for", n)
		}
		wantErr(t, l.Extend(t.Context(), ttl), leasehold.ErrNotHeld, leasehold.ErrLost)
	})
}

func TestExtend_IsRepeatedUntilConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		for _, opts := range [][]leasehold.Option{nil, {leasehold.WithoutRenewal()}} {
			c, d := open(t, store, append(opts, leasehold.WithTTL(ttl))...)
			l := lock(t, c, "k")
			d.on(renew, 3, fails)
			start := time.Now()
			if err := l.Extend(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			if got := time.Since(start); got > ttl {
				t.Errorf("took %v", got)
			}
			if l.State() != leasehold.Held || l.Remaining() < 55*time.Second {
				t.Errorf("%v, %v left", l.State(), l.Remaining())
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestExtend_WhoseContextEndsIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		d.on(renew, 0, hangs)
		reason := errors.New("reason")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, reason)
		defer cancel()
		err := l.Extend(ctx, ttl)
		wantErr(t, err, leasehold.ErrUnknown, context.DeadlineExceeded, reason)
		if errors.Is(err, leasehold.ErrNotHeld) {
			t.Errorf("%v says not held", err)
		}
		// Without a bound of its own it ends with the lease.
		wantErr(t, l.Extend(context.Background(), ttl), leasehold.ErrNotHeld, leasehold.ErrLost)
	})
}

// TestExtend_ConcurrentWithRenewals has one renewal of a lease under way at a
// time, however many ask.
func TestExtend_ConcurrentWithRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		var mu sync.Mutex
		flying := 0
		l := lock(t, c, "k")
		d.on(renew, 0, fault{late: 100 * time.Millisecond})
		d.reply = func(v verb, r driver.Reply) driver.Reply {
			mu.Lock()
			defer mu.Unlock()
			flying++
			return r
		}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				asked := time.Now()
				if err := l.Extend(t.Context(), ttl); err != nil {
					t.Error(err)
				}
				if got := l.Deadline().Sub(asked); got < validity {
					t.Errorf("lasts %v from the asking, want at least %v", got, validity)
				}
			})
		}
		wg.Wait()
		seen := d.seen(renew)
		for i, r := range seen[1:] {
			if r.at.Sub(seen[i].at) < 100*time.Millisecond {
				t.Errorf("renewal %d left %v after the one before", i+1, r.at.Sub(seen[i].at))
			}
		}
	})
}

func TestMaxRenewAttempts_GivesUpAfterThatManyFailures(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithMaxRenewAttempts(3))
		l := lock(t, c, "k")
		d.on(renew, 2, fails) // heals in time
		time.Sleep(time.Minute)
		if l.State() != leasehold.Held {
			t.Fatalf("state %v after two failures", l.State())
		}
		before := d.count(renew)
		d.on(renew, 0, fails)
		<-l.Context().Done()
		wantErr(t, context.Cause(l.Context()), leasehold.ErrLost, errReplyLost)
		if time.Now().After(l.Deadline().Add(-time.Second)) {
			t.Errorf("only %v before the deadline", time.Until(l.Deadline()))
		}
		synctest.Wait()
		if n := d.count(renew) - before; n != 3 {
			t.Errorf("gave up after %d", n)
		}
	})
}

func TestRenewFraction_SetsWhen(t *testing.T) {
	for _, fraction := range []float64{0.1, 0.5, 0.9} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithRenewFraction(fraction))
			start := time.Now()
			l := lock(t, c, "k")
			time.Sleep(ttl)
			want := time.Duration(float64(ttl) * fraction)
			if got := d.seen(renew)[0].at.Sub(start); got != want {
				t.Errorf("first renewal after %v, want %v", got, want)
			}
			time.Sleep(time.Hour)
			if l.State() != leasehold.Held {
				t.Errorf("state %v", l.State())
			}
		})
	}
}
