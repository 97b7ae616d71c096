package library_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// sought is a store that counts the renewals of each key, and is away, or has waiters, on request.
type sought struct {
	nowhere
	mu           sync.Mutex
	away, wanted bool
	renewed      []string // keys
}

func (s *sought) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ref := range refs {
		s.renewed = append(s.renewed, ref.Key)
		if s.away {
			each(i, driver.Reply{}, errors.New("reset"))
			continue
		}
		each(i, driver.Reply{State: driver.Granted, Wanted: s.wanted}, nil)
	}
}

func (s *sought) set(away, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.wanted, s.renewed = away, wanted, nil
}

// count returns the renewals of the keys, or of all.
func (s *sought) count(keys ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.renewed {
		if len(keys) == 0 || slices.Contains(keys, key) {
			n++
		}
	}
	return n
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestWanted_IsAskedOnceASecond renews neither with every batch of a shorter lease nor with every
// further call.
func TestWanted_IsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sought{}
		c := newClient(t, store)
		lock(t, c, "short", leasehold.WithTTL(100*time.Millisecond))
		long := lock(t, c, "long")
		time.Sleep(time.Second)
		store.set(false, false)
		long.Wanted()
		time.Sleep(10 * time.Second)
		if n := store.count("long"); n < 10 || n > 12 {
			t.Errorf("%d renewals in 10 s", n)
		}
		var leases []*leasehold.Lease
		for i := range 1000 {
			leases = append(leases, lock(t, c, fmt.Sprint(i)))
		}
		store.set(false, false)
		for _, l := range leases {
			time.Sleep(time.Millisecond)
			l.Wanted()
		}
		if n := store.count(); n > 1500 {
			t.Errorf("%d renewals for 1000 calls within a second", n)
		}
		store.set(false, true)
		time.Sleep(1100 * time.Millisecond)
		if !closed(long.Wanted()) || !closed(leases[999].Wanted()) {
			t.Error("a waiter is queued, and a channel has not closed")
		}
		store.set(false, true)
		time.Sleep(5 * time.Second)
		if n := store.count("long", "999"); n > 2 {
			t.Errorf("%d renewals in 5 s after the channels have closed", n)
		}
	})
}

// TestWanted_AfterAnOutage: the renewals that only Wanted makes cost no lease its attempts, and the
// first one after an outage is not later than others.
func TestWanted_AfterAnOutage(t *testing.T) {
	for _, c := range []struct {
		ttl, away time.Duration
		attempts  int
	}{{30 * time.Second, 2 * time.Second, 1}, {24 * time.Hour, 5 * time.Minute, 0}, {24 * time.Hour, time.Second, 5}} {
		synctest.Test(t, func(t *testing.T) {
			store := &sought{}
			l := lock(t, newClient(t, store), "k", leasehold.WithTTL(c.ttl), leasehold.WithMaxRenewAttempts(c.attempts))
			wanted := l.Wanted()
			time.Sleep(3500 * time.Millisecond)
			store.set(true, true)
			time.Sleep(c.away)
			store.set(false, true)
			if time.Sleep(1100 * time.Millisecond); !closed(wanted) || l.State() != leasehold.Held {
				t.Errorf("%+v: closed: %v; %v: %v", c, closed(wanted), l.State(), context.Cause(l.Context()))
			}
		})
	}
}

func TestWanted_NeverWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sought{wanted: true}
		l := lock(t, newClient(t, store), "k", leasehold.WithoutRenewal())
		wanted := l.Wanted()
		time.Sleep(5 * time.Second)
		if n := store.count(); n > 0 {
			t.Errorf("%d renewals", n)
		}
		if err := l.Extend(t.Context(), time.Minute); err != nil || closed(wanted) {
			t.Errorf("%v; closed: %v", err, closed(wanted))
		}
	})
}
