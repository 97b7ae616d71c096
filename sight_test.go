package leasehold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// What a waiter knows, and whom it listens to.

// await has c wait for k until the time is up, and returns the refusal.
func await(c *leasehold.Client, d time.Duration) chan *leasehold.HeldError {
	refused := make(chan *leasehold.HeldError, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		_, err := c.Mutex("k").Lock(ctx)
		held := new(leasehold.HeldError)
		errors.As(err, &held)
		refused <- held
	}()
	synctest.Wait()
	return refused
}

func TestHeld_HR_C8_NamesNobodyWhoHasGone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("first"))
		b, _ := open(t, store, leasehold.WithName("second"))
		c, _ := open(t, store)
		d, _ := open(t, store)
		first := lock(t, a, "k")
		go func() { _, _ = b.Mutex("k").Lock(t.Context()) }()
		synctest.Wait()
		next := await(c, 4200*time.Millisecond)
		last := await(d, 8200*time.Millisecond)
		time.Sleep(2 * time.Second)
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		for _, refused := range []chan *leasehold.HeldError{next, last} {
			held := <-refused
			if held.Owner == "first" {
				t.Errorf("%q, who released it long ago", held)
			}
		}
	})
}

func TestHeld_HR_C8_RemainingIsAsOfNow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("holder"))
		b, _ := open(t, store)
		retrying, _ := open(t, store, leasehold.WithRetry(leasehold.Constant(time.Minute)))
		l := lock(t, a, "k", leasehold.WithTTL(time.Minute), leasehold.WithoutRenewal())
		all := []chan *leasehold.HeldError{await(b, 10*time.Second), await(retrying, 10*time.Second)}
		for _, refused := range all {
			held := <-refused
			if held.Owner != "holder" {
				t.Errorf("%q: it is still the same", held)
			}
			snap, _ := store.Inspect(t.Context(), "k")
			if off := (held.Remaining - snap.Holders[0].Remaining).Abs(); off > 5*time.Millisecond {
				t.Errorf("%v, but the store keeps it for %v", held.Remaining, snap.Holders[0].Remaining)
			}
		}
		_ = l.Release()
	})
	// Who is first of the queue is told anew when the holder has renewed.
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, _ := open(t, store)
		lock(t, a, "k")
		if held := <-await(b, 55*time.Second); held.Remaining < 19*time.Second {
			t.Errorf("%v left, of a lease that is renewed every 10 s", held.Remaining)
		}
	})
}

// The waiter is not the first of its process, which asks every second.
func TestLock_HR_D9_ListensAgainWhenHintsArrive(t *testing.T) {
	for name, tell := range map[string]func(t *testing.T, b *leasehold.Client, l *leasehold.Lease){
		"for another": func(t *testing.T, b *leasehold.Client, other *leasehold.Lease) {
			if err := other.Release(); err != nil {
				t.Error(err)
			}
		},
		"for nobody": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				a, _ := open(t, store)
				b, d := open(t, store)
				first, other := lock(t, a, "k"), lock(t, a, "other")
				go func() { _, _ = b.Mutex("other").Lock(t.Context()) }()
				got := make(chan error, 2)
				for range 2 {
					go func() {
						l, err := b.Mutex("k").Lock(t.Context())
						if err == nil {
							err = l.Release()
						}
						got <- err
					}()
					synctest.Wait()
				}
				snap, _ := store.Inspect(t.Context(), "k")
				id := snap.Waiters[1].ID
				asked := func() (n int) {
					before := len(d.seen(renew))
					time.Sleep(20 * time.Second)
					for _, c := range d.seen(renew)[before:] {
						if c.ref.ID == id {
							n++
						}
					}
					return n
				}
				if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: id}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Second) // it has learnt that
				if n := asked(); n < 30 {
					t.Errorf("asked %d times in 20 s while no hint is heard, want twice a second", n)
				}
				if tell != nil {
					tell(t, b, other)
					time.Sleep(time.Second)
					if n := asked(); n > 6 {
						t.Errorf("asked %d times in 20 s when hints arrive again", n)
					}
				}
				start := time.Now()
				if err := first.Release(); err != nil {
					t.Error(err)
				}
				for range 2 {
					if err := <-got; err != nil {
						t.Error(err)
					}
				}
				if waited := time.Since(start); tell != nil && waited != 0 || waited > time.Second {
					t.Errorf("served %v after the release", waited)
				}
			})
		})
	}
}
