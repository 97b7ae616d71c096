package library_test

import (
	"context"
	"errors"
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
