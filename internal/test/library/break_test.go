package library_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// listener is a driver that keeps the receiver of its hints.
type listener struct {
	*faultDriver
	mu      sync.Mutex
	deliver func(driver.Hint)
}

func (l *listener) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliver = f
	return l.faultDriver.Watch(f)
}

// listening returns a client and its driver.
func listening(t *testing.T, store *memdriver.Driver, opts ...leasehold.Option) (*leasehold.Client, *listener) {
	t.Helper()
	l := &listener{faultDriver: newFault(store)}
	return newClient(t, l, opts...), l
}

func TestBreak_IsKnownAtOnceToWhoeverHasHeldAFreeLockForASecond(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		ended := 0
		c, e := listening(t, store, leasehold.WithTTL(time.Hour), leasehold.WithObserver(leasehold.Observer{
			Ended: func(_ context.Context, info leasehold.EndedInfo) {
				if ended++; info.Reason() != "broken" {
					t.Errorf("reason %q", info.Reason())
				}
			},
		}))
		l := lock(t, c, "k")
		time.Sleep(time.Second)
		synctest.Wait()
		began := time.Now()
		for range 2 { // the second time nothing is there
			if _, err := store.Join().Break(t.Context(), "k", l.ID(), "host is gone"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		cause := context.Cause(l.Context())
		wantErr(t, cause, leasehold.ErrLost, leasehold.ErrBroken)
		if !strings.Contains(cause.Error(), "host is gone") || time.Since(began) != 0 || e.count(renew) != 0 {
			t.Errorf("%v, after %v and %d renewals", cause, time.Since(began), e.count(renew))
		}
		wantErr(t, l.Release(), leasehold.ErrLost)
		e.deliver(driver.Hint{Kind: driver.HintBroken, Key: "k", ID: l.ID(), Reason: "late, or doubled"})
		if again := context.Cause(l.Context()); ended != 1 || !errors.Is(again, cause) {
			t.Errorf("ended %d times, by %v", ended, again)
		}
	})
}

func TestBreak_IsNotTakenForThatOfAnotherLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, e := listening(t, store)
		l := lock(t, c, "k")
		time.Sleep(time.Second)
		synctest.Wait()
		for _, h := range []driver.Hint{
			{Key: "other", ID: l.ID()}, // ids are unique in their room only
			{Key: "k", ID: "another"},
			{ID: l.ID()},
		} {
			h.Kind, h.Reason = driver.HintBroken, "not meant"
			e.deliver(h)
			if cause := context.Cause(l.Context()); cause != nil {
				t.Errorf("%+v has ended the lease: %v", h, cause)
			}
		}
		released := lock(t, c, "other")
		giveBack(t, released)
		e.deliver(driver.Hint{Kind: driver.HintBroken, Key: "other", ID: released.ID(), Reason: "too late"})
		wantErr(t, context.Cause(released.Context()), leasehold.ErrReleased)
		giveBack(t, l)
	})
}
