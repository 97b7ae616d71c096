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

// A lease that becomes less than it was.

// writer returns the lease of a writer, and what stands before the store from
// then on.
func writer(t *testing.T, store *memdriver.Driver) (*leasehold.Client, *leasehold.Lease, *faultDriver) {
	t.Helper()
	c, d := open(t, store, leasehold.WithTTL(ttl))
	w, err := c.RWMutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, w, d
}

// short is a context for one request that is not answered.
func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDowngrade_HR_A3_OfUnknownOutcomeLeavesAReader(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, w, d := writer(t, store)
		d.on(acquire, 1, silent)
		wantErr(t, w.Downgrade(short(t)), leasehold.ErrUnknown)
		other, _ := open(t, store)
		reader, err := other.RWMutex("k").TryRLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, take := range map[string]func(context.Context) (*leasehold.Lease, error){
			"write": c.RWMutex("k").TryLock, "mutex": c.Mutex("k").TryLock,
		} {
			if _, err := take(w.Context()); !errors.Is(err, leasehold.ErrMismatch) {
				t.Errorf("%s beside a reader: %v", name, err)
			}
		}
		inner, err := c.RWMutex("k").TryRLock(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = inner.Release()
		if err := w.Downgrade(t.Context()); err != nil {
			t.Errorf("repeated: %v", err)
		}
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrMismatch)
		if err := errors.Join(w.Release(), reader.Release()); err != nil {
			t.Error(err)
		}
	})
}

func TestDowngrade_HR_A3_ThatWasCertainlyNotDoneLeavesAWriter(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, w, d := writer(t, store)
		d.on(acquire, 1, refuses)
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrUnavailable)
		inner, err := c.RWMutex("k").TryLock(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrMismatch) // held twice
		_ = inner.Release()
		if err := w.Downgrade(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The request is still on its way when the lease is released, or lost.
func TestDowngrade_HR_A3_ThatComesLateLocksForNobody(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *leasehold.Lease, *faultDriver){
		"after a release": func(t *testing.T, w *leasehold.Lease, _ *faultDriver) {
			if err := w.Release(); err != nil {
				t.Error(err)
			}
		},
		"after a loss": func(t *testing.T, w *leasehold.Lease, d *faultDriver) {
			d.on(renew, 0, refuses)
			<-w.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				_, w, d := writer(t, store)
				d.on(acquire, 1, fault{stray: 2 * ttl})
				wantErr(t, w.Downgrade(short(t)), leasehold.ErrUnknown)
				end(t, w, d)
				time.Sleep(2 * ttl)
				synctest.Wait()
				wantFree(t, store, "k")
			})
		})
	}
}

// Release is called while the request is on its way.
func TestDowngrade_HR_A3_BesideAReleaseForbidsItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.on(acquire, 1, fault{delay: time.Second})
		done := make(chan error, 1)
		go func() { done <- w.Downgrade(t.Context()) }()
		synctest.Wait()
		if err := w.Release(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-done, leasehold.ErrNotHeld)
		wantFree(t, store, "k")
		if ref := d.seen(release)[0].ref; ref.RejectIDFor == 0 {
			t.Error("the store was not told to refuse what comes late")
		}
	})
}

func TestDowngrade_HR_A3_NobodyReentersToWriteMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, w, d := writer(t, store)
		d.on(acquire, 1, fault{late: time.Second})
		done := make(chan error, 1)
		go func() { done <- w.Downgrade(t.Context()) }()
		synctest.Wait()
		_, err := c.RWMutex("k").TryLock(w.Context())
		wantErr(t, err, leasehold.ErrMismatch)
		inner, err := c.RWMutex("k").TryRLock(w.Context())
		if err != nil {
			t.Fatalf("to read: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := errors.Join(w.Release(), inner.Release()); err != nil {
			t.Error(err)
		}
		wantFree(t, store, "k")
	})
}

func TestDowngrade_HR_A3_AnswerAfterTheDeadlineRevivesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.on(renew, 0, fails)
		d.on(acquire, 1, fault{late: ttl})
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrNotHeld, leasehold.ErrLost)
		if w.State() != leasehold.Lost || w.Remaining() != 0 {
			t.Errorf("%v, %v left", w.State(), w.Remaining())
		}
	})
}

func TestDowngrade_HR_A3_OfALeaseThatWasBrokenSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.deliver(func(driver.Hint, func(driver.Hint)) {})
		if _, err := store.Break(t.Context(), "k", w.ID(), "stuck"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrNotHeld, leasehold.ErrBroken)
		wantErr(t, context.Cause(w.Context()), leasehold.ErrBroken)
	})
}

// A request that is on its way would make a sharer of the lease when somebody else
// has taken it over to write.
func TestDowngrade_HR_A3_OfUnknownOutcomeIsNotLeftToSomebodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.on(acquire, 1, fault{stray: ttl / 2})
		wantErr(t, w.Downgrade(short(t)), leasehold.ErrUnknown)
		wantErr(t, w.Detach(t.Context()), leasehold.ErrMismatch)
		if err := w.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Detach(t.Context()); err != nil { // a reader's now, whatever comes
			t.Error(err)
		}
	})
}

func TestDowngrade_HR_A3_AndDetachExcludeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.on(acquire, 1, fault{delay: time.Second})
		done := make(chan error, 1)
		go func() { done <- w.Downgrade(t.Context()) }()
		synctest.Wait()
		wantErr(t, w.Detach(t.Context()), leasehold.ErrMismatch)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.on(renew, 1, fault{delay: time.Second})
		done := make(chan error, 1)
		go func() { done <- w.Detach(t.Context()) }()
		synctest.Wait()
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrMismatch)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
