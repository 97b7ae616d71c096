package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// A lease that is left to another process.

func TestDetach_LeavesTheLeaseInTheStoreForItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l, err := c.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 4)
		if err := l.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, context.Cause(l.Context()), leasehold.ErrReleased)
		if err := l.Release(); err != nil {
			t.Errorf("release after detaching: %v", err)
		}
		cancel()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
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

func TestDetach_ConfirmsALeaseThatWasHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithTTL(ttl))
		b, _ := open(t, store, leasehold.WithTTL(ttl))
		first := lock(t, a, "k")
		time.AfterFunc(time.Second, func() { _ = first.Release() })
		l, err := b.Mutex("k", leasehold.WithoutRenewal()).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2) // far longer than an unconfirmed grant is kept
		snap, _ := store.Inspect(t.Context(), "k")
		if len(snap.Holders) != 1 || !snap.Holders[0].Confirmed {
			t.Errorf("store has %+v", snap.Holders)
		}
	})
}

func TestDetach_RefusesWhatItCannotLeave(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		outer := lock(t, c, "k")
		inner, err := c.Mutex("k").Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, inner.Detach(t.Context()), leasehold.ErrMismatch)
		_ = inner.Release()
		if outer.State() != leasehold.Held {
			t.Errorf("a refusal ended a lease: %v", outer.State())
		}

		// The store does not answer: the lease is as it was.
		d.on(renew, 1, hangs)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, outer.Detach(short), leasehold.ErrUnknown)
		if outer.State() == leasehold.Lost || outer.State() == leasehold.Released {
			t.Errorf("state %v after an unknown outcome", outer.State())
		}
		if err := outer.Release(); err != nil {
			t.Error(err)
		}
		wantErr(t, outer.Detach(t.Context()), leasehold.ErrNotHeld)
	})
}

// What was looked at before the store is asked stays so until it has answered: a
// lease that has been left must not be ended by who re-entered meanwhile.
func TestDetach_HR_A4_NobodyReentersMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		d.on(renew, 1, fault{late: time.Second})
		done := make(chan error, 1)
		go func() { done <- l.Detach(t.Context()) }()
		time.Sleep(time.Millisecond)
		inner, err := c.Mutex("k").TryLock(l.Context())
		wantErr(t, err, leasehold.ErrMismatch)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if inner != nil {
			_ = inner.Release()
		}
		snap, _ := store.Inspect(t.Context(), "k")
		if len(snap.Holders) != 1 || snap.Holders[0].ID != l.ID() {
			t.Errorf("the lease that was left is gone: %+v", snap.Holders)
		}

		// One that was not left can be re-entered as before.
		l = lock(t, c, "k2")
		d.onKey(renew, "k2", 0, hangs)
		wantErr(t, l.Detach(short(t)), leasehold.ErrUnknown)
		if inner, err = c.Mutex("k2").TryLock(l.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(inner.Release(), l.Release()); err != nil {
			t.Error(err)
		}
	})
}
