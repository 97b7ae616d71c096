package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// ear is a driver that tells who listens by it.
type ear struct {
	*faultDriver
	failure error // of Watch

	mu      sync.Mutex
	tries   []time.Time
	deliver func(driver.Hint) // of the last subscription
	subs    int               // that are open
}

func (e *ear) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries = append(e.tries, time.Now())
	if e.failure != nil {
		return nil, e.failure
	}
	sub, err := e.faultDriver.Watch(f)
	if err != nil {
		return nil, err
	}
	e.deliver, e.subs = f, e.subs+1
	return &closing{sub, e}, nil
}

type closing struct {
	driver.Subscription
	of *ear
}

func (s *closing) Close() error {
	s.of.mu.Lock()
	s.of.subs--
	s.of.mu.Unlock()
	return s.Subscription.Close()
}

// listens is how often it was tried to listen, and how many subscriptions there are.
func (e *ear) listens() (tries, subs int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.tries), e.subs
}

// hearing returns a client and what it listens by.
func hearing(t *testing.T, store *memdriver.Driver, opts ...leasehold.Option) (*leasehold.Client, *ear) {
	t.Helper()
	e := &ear{faultDriver: newFault(store)}
	c, err := leasehold.New(e, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, e
}

func TestBreak_IsKnownAtOnceToWhoeverHasHeldAFreeLockForASecond(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		ended := 0
		c, e := hearing(t, store, leasehold.WithTTL(time.Hour), leasehold.WithObserver(leasehold.Observer{
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
		c, e := hearing(t, store)
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

func TestBreak_OfAWaiterIsNotTakenForThatOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, e := hearing(t, store)
		other, _ := open(t, store)
		first := lock(t, other, "k")
		got := make(chan error, 1)
		go func() {
			l, err := c.Mutex("k").Lock(t.Context())
			if err == nil {
				err = l.Release()
			}
			got <- err
		}()
		synctest.Wait()
		snap, err := store.Inspect(t.Context(), "k")
		if err != nil || len(snap.Waiters) != 1 {
			t.Fatalf("%+v, %v", snap, err)
		}
		asked := e.count(renew)
		e.deliver(driver.Hint{Kind: driver.HintBroken, Key: "other", ID: snap.Waiters[0].ID, Reason: "not meant"})
		synctest.Wait()
		if n := e.count(renew) - asked; n != 0 {
			t.Errorf("asked %d times because of another lock", n)
		}
		giveBack(t, first)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestListening_CostsShortLocksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, e := hearing(t, store)
		before := lock(t, c, "k")
		for i := range 100 { // one is held at every moment, none for a second
			time.Sleep(200 * time.Millisecond)
			next := lock(t, c, "other")
			time.Sleep(300 * time.Millisecond)
			giveBack(t, before)
			time.Sleep(200 * time.Millisecond)
			before = lock(t, c, "k")
			time.Sleep(300 * time.Millisecond)
			giveBack(t, next)
			if i%10 == 0 { // or none for a while
				giveBack(t, before)
				time.Sleep(3 * time.Second)
				before = lock(t, c, "k")
			}
		}
		if tries, _ := e.listens(); tries != 0 {
			t.Errorf("listened %d times", tries)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if tries, subs := e.listens(); tries != 1 || subs != 1 {
			t.Errorf("%d tries and %d subscriptions for a lease of a second", tries, subs)
		}
		giveBack(t, before)
		held := lock(t, c, "k")
		time.Sleep(time.Hour)
		giveBack(t, held)
		if tries, subs := e.listens(); tries != 1 || subs != 1 {
			t.Errorf("%d tries and %d subscriptions for another lease", tries, subs)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, subs := e.listens(); subs != 0 {
			t.Errorf("%d subscriptions after Close", subs)
		}
	})
}

func TestListening_DoesNotBeginAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, e := hearing(t, store)
		lock(t, c, "k")
		time.Sleep(time.Second - 1)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if tries, _ := e.listens(); tries != 0 {
			t.Errorf("listened %d times", tries)
		}
	})
}

// A store that cannot be heard is tried again once in a minute, and one that is never
// heard is left alone.
func TestListening_ThatFailsIsRepeatedSeldom(t *testing.T) {
	for name, row := range map[string]struct {
		failure error
		tries   int
		says    string
	}{
		"for now":  {driver.ErrUnavailable, 10, "noticed when these are renewed"},
		"for ever": {errors.ErrUnsupported, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				var log bytes.Buffer
				c, e := hearing(t, store, leasehold.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				e.failure = row.failure
				l := lock(t, c, "k")
				for range 10 {
					time.Sleep(30 * time.Second)
					giveBack(t, lock(t, c, "other"))
					time.Sleep(30 * time.Second)
				}
				synctest.Wait()
				if tries, _ := e.listens(); tries != row.tries {
					t.Errorf("%d tries in ten minutes, want %d", tries, row.tries)
				}
				if n := strings.Count(log.String(), "\n"); n != 0 && row.says == "" || n > 10 || !strings.Contains(log.String(), row.says) {
					t.Errorf("log:\n%s", &log)
				}
				giveBack(t, l)
			})
		})
	}
}
