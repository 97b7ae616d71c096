package library_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/fence"
)

// A lease that was left in the store, and is taken over.

// left takes a lock, leaves its lease in the store, and returns it.
func left(t *testing.T, l leasehold.Locker) *leasehold.Lease {
	t.Helper()
	lease := must(t)(l.Lock(t.Context()))
	noErr(t, lease.Detach(t.Context()))
	return lease
}

func TestAdopt_HR_F13_RefusesWhatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithTTL(ttl))
		b, d := open(t, store, leasehold.WithTTL(ttl))
		adopt := func(key, id string, wants ...error) {
			t.Helper()
			l, err := b.Mutex(key).Adopt(t.Context(), id)
			if err == nil {
				t.Errorf("%q of %q was taken over", id, key)
				_ = l.Release()
				return
			}
			wantErr(t, err, wants...)
		}
		expired := left(t, a.Mutex("expired"))
		released := lock(t, a, "released")
		giveBack(t, released)
		time.Sleep(ttl + time.Second)
		adopt("expired", expired.ID(), leasehold.ErrNotHeld)
		adopt("released", released.ID(), leasehold.ErrNotHeld)
		adopt("never", "NEVERTHERE", leasehold.ErrNotHeld)

		broken := left(t, a.Mutex("broken"))
		breakIt(t, store, broken)
		adopt("broken", broken.ID(), leasehold.ErrNotHeld, leasehold.ErrBroken)

		other := lock(t, a, "other")
		adopt("k", other.ID(), leasehold.ErrNotHeld)      // of another key
		adopt("other", "SOMEOTHER", leasehold.ErrNotHeld) // another's lock
		before := d.count(renew)
		for _, id := range []string{"", "-x", "a b", strings.Repeat("x", 65), "ä"} {
			adopt("other", id, leasehold.ErrInvalid)
		}
		if n := d.count(renew) - before; n > 0 {
			t.Errorf("%d requests to the store with an invalid id", n)
		}
		for _, key := range []string{"expired", "released", "never", "k"} {
			wantFree(t, store, key) // the attempt created no record
		}
		if other.State() != leasehold.Held {
			t.Errorf("another's lease is %v", other.State())
		}
		giveBack(t, other)
	})
}

func TestAdopt_HR_F13_LeaseOfThisClientIsNotTakenTwice(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		mine := lock(t, c, "mine")
		_, err := c.Mutex("mine").Adopt(t.Context(), mine.ID())
		wantErr(t, err, leasehold.ErrMismatch)
		if mine.State() != leasehold.Held {
			t.Errorf("state %v", mine.State())
		}
		giveBack(t, mine)

		before := left(t, c.Mutex("k"))
		d.on(renew, 2, fault{late: time.Second})
		got := make(chan *leasehold.Lease, 2)
		for range 2 {
			go func() {
				l, err := c.Mutex("k").Adopt(t.Context(), before.ID())
				if err != nil {
					wantErr(t, err, leasehold.ErrMismatch)
				}
				got <- l
			}()
		}
		first, second := <-got, <-got
		if (first == nil) == (second == nil) {
			t.Fatalf("taken over as %v and %v", first, second)
		}
		giveBack(t, cmp.Or(first, second))
	})
}

func TestBreak_HR_F13_WithoutAReasonTellsWhoDidIt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		for _, name := range []string{"operator-3", strings.Repeat("ä", 128)} {
			c := newClient(t, newFault(store), leasehold.WithName(name))
			l := lock(t, c, "k")
			wantErr(t, c.Break(t.Context(), "k", "somebody-else", ""), leasehold.ErrNotHeld)
			noErr(t, c.Break(t.Context(), "k", l.ID(), ""))
			err := l.Release()
			wantErr(t, err, leasehold.ErrBroken)
			if !strings.Contains(err.Error(), "by "+name[:len("operator-3")]) {
				t.Errorf("%v does not name the operator", err)
			}
		}
	})
}

// unseen is a store that cannot be inspected for a while.
type unseen struct {
	*faultDriver
	until time.Time
}

func (d *unseen) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if time.Now().Before(d.until) {
		return driver.Snapshot{}, errors.New("the answer was lost")
	}
	return d.faultDriver.Inspect(ctx, key)
}

// TestAdopt_HR_A3_KindIsLookedAtUntilTheStoreAnswers: a lost answer must not turn the lease of a
// reader into a writer's.
func TestAdopt_HR_A3_KindIsLookedAtUntilTheStoreAnswers(t *testing.T) {
	for _, away := range []time.Duration{time.Second, time.Hour} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store, leasehold.WithTTL(time.Minute))
			before := left(t, a.RWMutex("k").RLocker())
			b := newClient(t, &unseen{newFault(store), time.Now().Add(away)})
			l, err := b.RWMutex("k").Adopt(t.Context(), before.ID())
			switch {
			case err == nil:
				t.Errorf("a reader's lease was taken over to write: %s", l.ID())
			case away == time.Second:
				wantErr(t, err, leasehold.ErrMismatch)
			default:
				wantErr(t, err, leasehold.ErrUnknown)
			}
		})
	}
}

// TestAdopt_HR_F13_F14_IsTheSameHolderForAFence: after an adoption the lease has the same owner,
// so a fence accepts the next write.
func TestAdopt_HR_F13_F14_IsTheSameHolderForAFence(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithName("host:100"))
		b, _, told := observed(t, store, leasehold.WithName("host:101"))
		reentrant := leasehold.WithReentrantOwner("job-7")
		type adopting = func(context.Context, string) (*leasehold.Lease, error)
		for key, row := range map[string]struct {
			lock  leasehold.Locker
			adopt adopting
			wrong []adopting // kinds that refuse it
		}{
			"mutex":                  {lock: a.Mutex("mutex"), adopt: b.Mutex("mutex").Adopt},
			"writer":                 {a.RWMutex("writer"), b.RWMutex("writer").Adopt, []adopting{b.RWMutex("writer").RAdopt, b.Semaphore("writer", 3).Adopt}},
			"reader":                 {a.RWMutex("reader").RLocker(), b.RWMutex("reader").RAdopt, []adopting{b.Mutex("reader").Adopt, b.Semaphore("reader", 3).Adopt}},
			"place":                  {a.Semaphore("place", 3), b.Semaphore("place", 3).Adopt, []adopting{b.Mutex("place").Adopt, b.RWMutex("place").RAdopt, b.Semaphore("place", 4).Adopt}},
			"of a reentrant owner":   {lock: a.Mutex("of a reentrant owner", reentrant), adopt: b.Mutex("of a reentrant owner").Adopt},
			"by a reentrant owner":   {lock: a.Mutex("by a reentrant owner"), adopt: b.Mutex("by a reentrant owner", reentrant).Adopt},
			"from one to the other":  {lock: a.Mutex("from one to the other", reentrant), adopt: b.Mutex("from one to the other", leasehold.WithReentrantOwner("job-8")).Adopt},
			"by the owner of before": {lock: a.Mutex("by the owner of before", reentrant), adopt: b.Mutex("by the owner of before", reentrant).Adopt},
		} {
			before := left(t, row.lock)
			for _, wrong := range row.wrong {
				_, err := wrong(t.Context(), before.ID())
				wantErr(t, err, leasehold.ErrMismatch)
			}
			l, err := row.adopt(t.Context(), before.ID())
			if err != nil {
				t.Errorf("%s: %v", key, err)
				continue
			}
			if got, want := fence.Of(l), fence.Of(before); got != want {
				t.Errorf("%s: the claim is %+v, and was %+v", key, got, want)
			}
			if key == "writer" {
				noErr(t, l.Downgrade(t.Context()))
			}
			giveBack(t, l)
			granted, ended := told.acq[len(told.acq)-1].Owner, told.ended[len(told.ended)-1].Owner
			if granted != before.Owner() || ended != before.Owner() {
				t.Errorf("%s: the observer got owners %q and %q, and the store shows %q", key, granted, ended, before.Owner())
			}
			wantFree(t, store, key)
		}
	})
}

// blind is a store without inspection.
type blind struct{ driver.Driver }

func TestAdopt_HR_F14_HasItsOwnNameWhereTheStoreShowsNone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithName("worker"))
		b := newClient(t, blind{newFault(store)}, leasehold.WithName("other"))
		before := left(t, a.Mutex("k"))
		for name, opts := range map[string][]leasehold.Option{"other": nil, "worker": {leasehold.WithName("worker")}} {
			l := must(t)(b.Mutex("k", opts...).Adopt(t.Context(), before.ID()))
			if l.Owner() != name || l.Token() != before.Token() {
				t.Errorf("%d of %s, want %d of %s", l.Token(), l.Owner(), before.Token(), name)
			}
			noErr(t, l.Detach(t.Context()))
		}
	})
}

// A lease that is left to another process.

func TestDetach_LeavesTheLeaseInTheStoreForItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := must(t)(c.Mutex("k").Lock(ctx))
		time.Sleep(ttl / 4)
		noErr(t, l.Detach(t.Context()))
		wantErr(t, context.Cause(l.Context()), leasehold.ErrReleased)
		giveBack(t, l)
		cancel()
		noErr(t, c.Close())
		if n := d.count(release); n != 0 {
			t.Errorf("%d releases were sent", n)
		}
		snap, _ := store.Inspect(t.Context(), "k")
		if len(snap.Holders) != 1 || snap.Holders[0].ID != l.ID() || snap.Holders[0].Remaining != ttl {
			t.Errorf("store has %+v, want lease %s for another %v", snap.Holders, l.ID(), ttl)
		}
		reply, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()})
		if err != nil || reply.State != driver.Released {
			t.Errorf("released by its id: %+v, %v", reply, err)
		}
	})
}

// TestDetach_HR_A4_RefusesWhatItCannotLeave: Detach checks the lease before it asks the store. A
// call that re-enters before the answer must not end the detached lease.
func TestDetach_HR_A4_RefusesWhatItCannotLeave(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		outer := lock(t, c, "k")
		inner := must(t)(c.Mutex("k").Lock(outer.Context()))
		wantErr(t, inner.Detach(t.Context()), leasehold.ErrMismatch)
		_ = inner.Release()
		if outer.State() != leasehold.Held {
			t.Errorf("a refusal ended a lease: %v", outer.State())
		}

		// The store does not answer: the lease is as it was.
		d.on(renew, 1, hangs)
		wantErr(t, outer.Detach(short(t)), leasehold.ErrUnknown)
		if outer.State() == leasehold.Lost || outer.State() == leasehold.Released {
			t.Errorf("state %v after an unknown outcome", outer.State())
		}
		giveBack(t, must(t)(c.Mutex("k").TryLock(outer.Context())))

		d.on(renew, 1, fault{late: time.Second})
		done := make(chan error, 1)
		go func() { done <- outer.Detach(t.Context()) }()
		time.Sleep(time.Millisecond)
		_, err := c.Mutex("k").TryLock(outer.Context())
		wantErr(t, err, leasehold.ErrMismatch)
		noErr(t, <-done)
		if n := holders(t, store, "k"); n != 1 {
			t.Errorf("the lease that was left is held %d times", n)
		}
		wantErr(t, outer.Detach(t.Context()), leasehold.ErrNotHeld)
	})
}

// TestAdopt_OfATicketLeavesItsWaiter in the queue.
func TestAdopt_OfATicketLeavesItsWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, _ := open(t, store)
		for _, l := range []*leasehold.Lease{lock(t, a, "held"), lock(t, a, "closed", leasehold.WithMinHold(10*time.Second))} {
			if l.Key() == "closed" {
				giveBack(t, l) // waiters wait for no holder
			}
			all := newCalls(t)
			all.begin(t.Context(), 0, b.Mutex(l.Key()))
			snap, err := store.Inspect(t.Context(), l.Key())
			if err != nil || len(snap.Waiters) != 1 {
				t.Fatalf("%+v, %v", snap, err)
			}
			_, err = a.Mutex(l.Key()).Adopt(t.Context(), snap.Waiters[0].ID)
			wantErr(t, err, leasehold.ErrNotHeld)
			if after, err := store.Inspect(t.Context(), l.Key()); err != nil || len(after.Waiters) != 1 {
				t.Errorf("waiters %+v, %v", after.Waiters, err)
			}
			_ = l.Release()
			giveBack(t, all.served(0))
		}
	})
}

// TestAdopt_HR_A2_WhatComesLateLocksForNobody: a request of the process that took the lock
// arrives after the process that adopted the lease has released it.
func TestAdopt_HR_A2_WhatComesLateLocksForNobody(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, d := open(t, store, leasehold.WithTTL(ttl))
		b, _ := open(t, store, leasehold.WithTTL(ttl))
		d.on(acquire, 1, fault{stray: 20 * time.Second, err: errReplyLost})
		before := left(t, a.Mutex("k"))
		l := must(t)(b.Mutex("k").Adopt(t.Context(), before.ID()))
		giveBack(t, l)
		time.Sleep(21 * time.Second)
		wantFree(t, store, "k")
	})
}
