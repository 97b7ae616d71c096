package library_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// The rules of the lease clock, each in virtual time. Random faults have never detected a library
// that breaks one of these rules.

const ttl = 10 * time.Second

func TestLease_L6_BlipAtARenewalHeals(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuses, "failed": fails, "reply lost": loses, "hung": hangs} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store, leasehold.WithTTL(ttl))
			l := lock(t, c, "k")
			d.on(renew, 1, f)
			time.Sleep(ttl/3 + time.Millisecond)
			if !f.hang && l.State() != leasehold.Unconfirmed {
				t.Errorf("state %v right after the failure, want unconfirmed", l.State())
			}
			time.Sleep(ttl / 2)
			if l.State() != leasehold.Held || l.Context().Err() != nil {
				t.Errorf("state %v, %v after the store came back", l.State(), context.Cause(l.Context()))
			}
			time.Sleep(time.Hour)
			giveBack(t, l)
		})
	}
}

func TestLease_LookAfterAStoppedProcessSaysLostBeforeAnyTimer(t *testing.T) {
	looks := map[string]func(*leasehold.Lease) bool{
		"Err":       func(l *leasehold.Lease) bool { return l.Context().Err() != nil },
		"Cause":     func(l *leasehold.Lease) bool { return errors.Is(context.Cause(l.Context()), leasehold.ErrLost) },
		"State":     func(l *leasehold.Lease) bool { return l.State() == leasehold.Lost },
		"Remaining": func(l *leasehold.Lease) bool { return l.Remaining() == 0 },
		"Token":     func(l *leasehold.Lease) bool { l.Token(); <-l.Context().Done(); return true },
		"Extend": func(l *leasehold.Lease) bool {
			return errors.Is(l.Extend(context.Background(), ttl), leasehold.ErrLost)
		},
		"Release": func(l *leasehold.Lease) bool { return errors.Is(l.Release(), leasehold.ErrLost) },
	}
	for name, lost := range looks {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, _ := open(t, store, leasehold.WithTTL(ttl))
			l := lock(t, c, "k")
			time.Sleep(time.Second)
			at := time.Now()
			clock.Advance(ttl) // no timer runs
			if !lost(l) {
				t.Error("the first look found the lease alive")
			}
			if passed := time.Since(at); passed != 0 {
				t.Errorf("it took %v of timers", passed)
			}
		})
	}
}

func TestLease_StoppedProcessEndsTheContextAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		clock.Advance(ttl)
		start := time.Now()
		<-l.Context().Done() // no call looks at the clock
		if got := time.Since(start); got > ttl/3 {
			t.Errorf("the context ended %v after the machine woke", got)
		}
	})
}

// TestSuspension_P2_P3_TimersOfBeforeServeNoLeaseOfAfterwards: timers stand still while the
// machine is suspended, so a timer that was set before fires late afterwards. A lease that begins
// afterwards must not use it.
func TestSuspension_P2_P3_TimersOfBeforeServeNoLeaseOfAfterwards(t *testing.T) {
	for name, before := range map[string]func(*leasehold.Lease){
		"a lease was held":     func(*leasehold.Lease) {},
		"a lease was released": func(l *leasehold.Lease) { _ = l.Release() },
	} {
		suspended := func(t *testing.T, store *memdriver.Driver) *leasehold.Client {
			c, _ := open(t, store)
			l := must(t)(c.Mutex("a", leasehold.WithTTL(time.Hour)).Lock(t.Context()))
			before(l)
			clock.Advance(2 * time.Hour)
			return c
		}
		runBubble(t, "told in time after "+name, func(t *testing.T, store *memdriver.Driver) {
			c := suspended(t, store)
			l := must(t)(c.Mutex("b", leasehold.WithTTL(time.Second), leasehold.WithoutRenewal()).Lock(t.Context()))
			began := time.Now()
			<-l.Context().Done()
			if late := time.Since(began) - time.Second; late > 10*time.Millisecond {
				t.Errorf("Done was closed %v late", late)
			}
		})
		runBubble(t, "renewed in time after "+name, func(t *testing.T, store *memdriver.Driver) {
			c := suspended(t, store)
			l := must(t)(c.Mutex("b", leasehold.WithTTL(3*time.Second)).Lock(t.Context()))
			time.Sleep(time.Minute)
			if l.Context().Err() != nil {
				t.Errorf("lost: %v", context.Cause(l.Context()))
			}
		})
	}
}

func TestReentry_NeitherShortensNorAdds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
		outer := lock(t, c, "k")
		want := outer.Deadline()
		time.Sleep(time.Second)
		for _, ttl := range []time.Duration{time.Second, time.Hour} {
			inner := must(t)(c.Mutex("k", leasehold.WithTTL(ttl)).Lock(outer.Context()))
			if !inner.Deadline().Equal(want) {
				t.Errorf("inner deadline is off by %v", inner.Deadline().Sub(want))
			}
			giveBack(t, inner)
		}
		if !outer.Deadline().Equal(want) || outer.State() != leasehold.Held {
			t.Errorf("outer deadline moved by %v, %v", outer.Deadline().Sub(want), outer.State())
		}
	})
}

func TestReentry_OwnerIsOfOneLock(t *testing.T) {
	owner := leasehold.WithReentrantOwner("worker-7")
	_, err := leasehold.New(memdriver.New(), owner)
	wantErr(t, err, leasehold.ErrInvalid)
	if err != nil && !strings.Contains(err.Error(), "worker-7") {
		t.Errorf("%v does not name the owner", err)
	}
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithName("web"))
		wantErr(t, c.Election("e", "", owner).Lead(t.Context(), nil), leasehold.ErrInvalid)
		if n := d.count(acquire); n != 0 {
			t.Errorf("%d requests for a lock that is refused", n)
		}
		for _, name := range []leasehold.Option{leasehold.WithName("api"), owner} { // in either order
			outer := lock(t, c, "k", owner, name)
			inner := lock(t, c, "k", name, owner)
			if inner.Token() != outer.Token() || outer.Owner() != "worker-7" {
				t.Errorf("tokens %d and %d of %q", outer.Token(), inner.Token(), outer.Owner())
			}
			_, err := c.Mutex("k").TryLock(t.Context()) // another lock of the same client
			wantErr(t, err, leasehold.ErrHeld)
			giveBack(t, inner, outer)
		}
	})
}

// TestReentry_ReleasedInnerLeaseDoesNotHideTheOuter: a context that was kept from a lease
// which has been released still re-enters the lease around it.
func TestReentry_ReleasedInnerLeaseDoesNotHideTheOuter(t *testing.T) {
	for _, opts := range [][]leasehold.Option{nil, {leasehold.WithLocalHandover(10)}} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, _ := open(t, store, opts...)
			outer := lock(t, c, "k")
			inner := must(t)(c.Mutex("k").Lock(outer.Context()))
			kept := context.WithoutCancel(inner.Context())
			giveBack(t, inner)
			ctx, cancel := context.WithTimeout(kept, time.Second)
			defer cancel()
			again, err := c.Mutex("k").Lock(ctx)
			if err != nil {
				t.Fatalf("it waits for itself: %v", err)
			}
			giveBack(t, again)
			giveBack(t, outer)
		})
	}
}
