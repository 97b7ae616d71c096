package library_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// The lock handed over by the store, and the bounds of waits.

// deliver sets the function that delivers the hints of a driver.
func (d *faultDriver) deliver(f func(driver.Hint, func(driver.Hint))) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hints = f
}

// the window in which a grant is to be confirmed

// If a store is away right after it has handed the lock over, the wait needs a new lease only if
// the outage begins before the confirmation has arrived.
func TestHandOver_HR_C10_ConfirmationLeavesAtOnceAndDelaysNoWork(t *testing.T) {
	for name, f := range map[string]fault{"hung": hangs, "failing": fails, "refusing": refuses} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, d := open(t, store)
			first := lock(t, a, "k")
			time.AfterFunc(time.Second, func() { giveBack(t, first) })
			start := time.Now()
			l := must(t)(b.Mutex("k").Lock(t.Context()))
			if got := time.Since(start); got != time.Second {
				t.Errorf("work began %v after the hand-over", got-time.Second)
			}
			synctest.Wait()
			d.on(renew, 0, f)
			time.Sleep(1500 * time.Millisecond)
			d.heal()
			time.Sleep(time.Minute)
			if l.State() != leasehold.Held {
				t.Errorf("%v after the store was away for 1.5 s: %v", l.State(), context.Cause(l.Context()))
			}
		})
	}
}

func TestMaxWait_BoundsTheWaitAndNotTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		first := lock(t, a, "k")
		for _, opts := range [][]leasehold.Option{nil, {leasehold.WithRetry(leasehold.Constant(300 * time.Millisecond))}} {
			b, d := open(t, store, append(opts, leasehold.WithMaxWait(2*time.Second))...)
			start := time.Now()
			_, err := b.Mutex("k").Lock(context.Background())
			wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
			if got := time.Since(start); got != 2*time.Second {
				t.Errorf("waited %v", got)
			}
			if held := new(leasehold.HeldError); !errors.As(err, &held) || held.Waited != 2*time.Second {
				t.Errorf("%+v", err)
			}
			l := lock(t, b, "free")
			time.Sleep(time.Minute)
			if err := l.Release(); err != nil {
				t.Errorf("the lease ended with the bound of the wait: %v", err)
			}

			d.on(acquire, 0, hangs)
			start = time.Now()
			_, err = b.Mutex("k").Lock(context.Background())
			wantErr(t, err, leasehold.ErrUnknown, context.DeadlineExceeded)
			if got := time.Since(start); got != 2*time.Second {
				t.Errorf("a hung store was waited for %v", got)
			}
		}
		b, d := open(t, store, leasehold.WithMaxWait(0))
		start := time.Now()
		_, err := b.Mutex("k").Lock(context.Background())
		wantErr(t, err, leasehold.ErrHeld)
		if d.count(acquire) != 1 || d.seen(acquire)[0].req.TicketTTL != 0 || time.Since(start) != 0 {
			t.Errorf("a wait of zero takes %d requests and %v", d.count(acquire), time.Since(start))
		}
		giveBack(t, first)
	})
}

func TestAcquire_L17_HasTheShapeOfAContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		ctx, release, err := c.Acquire(t.Context(), "k", time.Minute)
		check(t, err)
		if got := d.seen(acquire)[0].req.TTL; got != time.Minute {
			t.Errorf("TTL %v", got)
		}
		again, inner, err := c.Acquire(ctx, "k", 0)
		if err != nil || again.Err() != nil {
			t.Fatalf("re-entry: %v", err)
		}
		noErr(t, errors.Join(inner(), release(), release()))
		wantErr(t, context.Cause(ctx), leasehold.ErrReleased)
		wantFree(t, store, "k")
		for _, ttl := range []time.Duration{-1, 1, math.MaxInt64} {
			_, _, err := c.Acquire(t.Context(), "k", ttl)
			wantErr(t, err, leasehold.ErrInvalid)
		}
	})
}

func TestMaxWait_HR_D6_IsOneBoundForSeveralLocks(t *testing.T) {
	for name, opts := range map[string][]leasehold.Option{"queued": nil, "retried": {leasehold.WithRetry(leasehold.Constant(100 * time.Millisecond))}} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, _ := open(t, store, append(opts, leasehold.WithMaxWait(2*time.Second))...)
			take := func() (*leasehold.MultiLease, time.Duration, error) {
				start := time.Now()
				l, err := leasehold.All(b.Mutex("1"), b.RWMutex("2").RLocker(), b.Semaphore("3", 2), b.RWMutex("4")).Lock(t.Context())
				return l, time.Since(start), err
			}
			for i := 1; i <= 3; i++ { // each is freed before its own bound
				l := lock(t, a, fmt.Sprint(i))
				time.AfterFunc(time.Duration(i)*1500*time.Millisecond, func() { _ = l.Release() })
			}
			_, took, err := take()
			wantErr(t, err, leasehold.ErrHeld)
			if took != 2*time.Second {
				t.Errorf("waited %v for one after the other", took)
			}
			time.Sleep(time.Minute)
			for i := 1; i <= 3; i++ {
				l := lock(t, a, fmt.Sprint(i))
				time.AfterFunc(time.Duration(i)*600*time.Millisecond, func() { _ = l.Release() })
			}
			l, took, err := take()
			if err != nil || took > 2*time.Second {
				t.Fatalf("%v after %v", err, took)
			}
			giveBack(t, l)
		})
	}
}

// TestLock_P8_WaitThatEndsWhileItAsksAnewIsNotHeld: the ticket has expired, and the store fails
// when the waiter asks for a new ticket.
func TestLock_P8_WaitThatEndsWhileItAsksAnewIsNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		lock(t, a, "k")
		for name, f := range map[string]fault{"fails": fails, "refuses": refuses, "hangs": hangs} {
			for _, opts := range [][]leasehold.Option{nil, {leasehold.WithLocalHandover(10)}} {
				time.AfterFunc(time.Second, func() {
					snap, _ := store.Inspect(t.Context(), "k")
					for _, w := range snap.Waiters {
						_, _ = store.Release(t.Context(), driver.Ref{Key: "k", ID: w.ID})
					}
					d.on(acquire, 0, f)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, err := b.Mutex("k", opts...).Lock(ctx)
				wantErr(t, err, leasehold.ErrUnknown, context.DeadlineExceeded)
				if errors.Is(err, leasehold.ErrHeld) || errors.Is(err, leasehold.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
				d.heal()
				cancel()
				time.Sleep(time.Minute) // until the ticket is undone
			}
		}
		d.on(acquire, 2, fails) // it is queued in the end
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Mutex("k").Lock(ctx)
		wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
	})
}
