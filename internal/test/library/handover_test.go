package library_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// The lock handed over by the store, and the bounds of waits.

// handOver has b wait for what a holds, releases it at once, and returns b's
// lease and the time of the grant.
func handOver(t *testing.T, store *memdriver.Driver, b *leasehold.Client, waiting time.Duration) (*leasehold.Lease, time.Time) {
	t.Helper()
	a, _ := open(t, store)
	first := lock(t, a, "k")
	got := make(chan *leasehold.Lease, 1)
	go func() {
		l, err := b.Mutex("k").Lock(context.Background())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	time.Sleep(waiting)
	granted := time.Now()
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	return <-got, granted
}

// deliver sets what happens to the hints of a driver.
func (d *faultDriver) deliver(f func(driver.Hint, func(driver.Hint))) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hints = f
}

func late(delay time.Duration) func(driver.Hint, func(driver.Hint)) {
	return func(h driver.Hint, f func(driver.Hint)) { time.AfterFunc(delay, func() { f(h) }) }
}

const confirm = time.Second // the window in which a grant is to be confirmed

func TestHandOver_DeadlineCountsFromTheGrantAndNotFromTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		b, d := open(t, store)
		d.deliver(late(400 * time.Millisecond))
		time.AfterFunc(2*time.Second, func() { d.on(renew, 0, hangs) }) // nothing confirms it
		l, granted := handOver(t, store, b, 2*time.Second)
		if got := time.Since(granted); got != 400*time.Millisecond {
			t.Fatalf("entered after %v, want with the message", got)
		}
		if got := l.Deadline().Sub(granted); got > confirm-confirm/100-2*time.Millisecond {
			t.Errorf("believes for %v from the grant, which passes on after %v", got, confirm)
		}
		<-l.Context().Done()
		if snap, _ := store.Inspect(t.Context(), "k"); len(snap.Holders) != 1 {
			t.Error("the store had already passed it on")
		}
	})
}

func TestHandOver_FastStoreClockMakesNobodyBelieveTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		origin := time.Now()
		fast := func(c time.Duration) time.Duration { // 1 % faster since the start
			if c == 0 {
				return 0
			}
			return c + time.Since(origin)/100
		}
		b, d := open(t, store)
		d.reply = func(_ verb, r driver.Reply) driver.Reply { r.Clock = fast(r.Clock); return r }
		d.deliver(func(h driver.Hint, f func(driver.Hint)) {
			h.Clock = fast(h.Clock)
			late(300*time.Millisecond)(h, f)
		})
		// The last answer before the grant was some time ago.
		time.AfterFunc(9*time.Second, func() { d.on(renew, 0, hangs) })
		l, granted := handOver(t, store, b, 9800*time.Millisecond)
		// By such a clock the window is over 1 % earlier.
		if got := l.Deadline().Sub(granted); got > confirm-confirm/101 {
			t.Errorf("believes for %v from the grant", got)
		}
	})
}

func TestHandOver_ClockThatSteppedForwardPromisesNoMoreThanAWindow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		b, d := open(t, store)
		d.deliver(func(h driver.Hint, f func(driver.Hint)) { h.Clock += 10 * time.Minute; f(h) })
		time.AfterFunc(2*time.Second, func() { d.on(renew, 0, hangs) })
		l, granted := handOver(t, store, b, 2*time.Second)
		if got := l.Deadline().Sub(granted); got > confirm {
			t.Errorf("believes for %v", got)
		}
	})
}

func TestHandOver_ConfirmedByTheFirstRenewalAndThenHeld(t *testing.T) {
	for name, deliver := range map[string]func(driver.Hint, func(driver.Hint)){"at once": nil, "late": late(900 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				b, d := open(t, store)
				d.deliver(deliver)
				l, _ := handOver(t, store, b, time.Second)
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				if got := l.Remaining(); got < 29*time.Second {
					t.Errorf("%v left after the confirmation", got)
				}
				time.Sleep(time.Hour)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A store that is away right after it has handed the lock over costs a fresh lease
// only if it goes before the confirmation has come.
func TestHandOver_HR_C10_ConfirmationLeavesAtOnceAndDelaysNoWork(t *testing.T) {
	for name, f := range map[string]fault{"hung": hangs, "failing": fails, "refusing": refuses} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				b, d := open(t, store)
				l, granted := handOver(t, store, b, time.Second)
				if got := time.Since(granted); got != 0 {
					t.Errorf("work began %v after the hand-over", got)
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
		})
	}
}

// While the store does not answer the confirmation is repeated, for the window.
func TestHandOver_HR_C10_ConfirmationIsRepeatedInItsWindow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		b, d := open(t, store)
		time.AfterFunc(time.Second, func() { d.on(renew, 0, fails) })
		time.AfterFunc(time.Second+900*time.Millisecond, d.heal)
		l, _ := handOver(t, store, b, time.Second+time.Millisecond)
		time.Sleep(time.Minute)
		if l.State() != leasehold.Held {
			t.Errorf("%v after the store was away for 0.9 s: %v", l.State(), context.Cause(l.Context()))
		}
	})
}

func TestHandOver_WithoutAUsableClockItAsksFirst(t *testing.T) {
	for name, change := range map[string]func(time.Duration) time.Duration{
		"store without a clock": func(time.Duration) time.Duration { return 0 },
		"clock stepped back":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				b, d := open(t, store)
				if change != nil {
					d.reply = func(_ verb, r driver.Reply) driver.Reply { r.Clock = change(r.Clock); return r }
				}
				d.deliver(func(h driver.Hint, f func(driver.Hint)) {
					if change == nil {
						h.Clock -= time.Hour
					}
					late(500*time.Millisecond)(h, f)
				})
				l, _ := handOver(t, store, b, 400*time.Millisecond)
				if got := l.Remaining(); got != 30*time.Second-300*time.Millisecond-2*time.Millisecond {
					t.Errorf("%v left: not counted from a question of its own", got)
				}
			})
		})
	}
}

func TestRenewal_AnswerToAStoppedProcessRevivesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		gate := make(chan struct{})
		d.on(renew, 1, fault{gate: gate})
		time.Sleep(ttl/3 + time.Millisecond) // it is in flight
		clock.Advance(validity - ttl/3)      // past the deadline, and not past that of the renewal
		if until := time.Until(l.Deadline()); until > 0 {
			t.Errorf("the deadline is still %v away", until)
		}
		close(gate)
		synctest.Wait() // the answer comes before anybody looks
		if l.State() != leasehold.Lost || l.Context().Err() == nil {
			t.Errorf("state %v", l.State())
		}
	})
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
		if err := first.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestMaxWait_ZeroAsksOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store, leasehold.WithMaxWait(0))
		lock(t, a, "k")
		start := time.Now()
		_, err := b.Mutex("k").Lock(context.Background())
		wantErr(t, err, leasehold.ErrHeld)
		if d.count(acquire) != 1 || d.seen(acquire)[0].req.TicketTTL != 0 || time.Since(start) != 0 {
			t.Errorf("%d requests, %v", d.count(acquire), time.Since(start))
		}
	})
}

func TestLock_P5_OutlivesAStoreThatIsAwayAndForgetsTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		first := lock(t, a, "k")
		got := make(chan error, 1)
		go func() {
			l, err := b.Mutex("k", leasehold.WithMaxOutage(-1)).Lock(context.Background())
			if err == nil {
				err = l.Release()
			}
			got <- err
		}()
		time.Sleep(time.Second)
		snap, _ := store.Inspect(t.Context(), "k")
		if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: snap.Waiters[0].ID}); err != nil {
			t.Fatal(err)
		}
		d.on(acquire, 0, refuses) // the ticket is gone, and the server fails over
		time.Sleep(time.Minute)
		d.heal()
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if wait := time.Since(start); wait > time.Second {
			t.Errorf("waited %v for a free lock", wait)
		}
	})
}

func TestLock_P8_WaitThatEndsWhileTheStoreIsAwayIsNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store)
		b, d := open(t, store)
		lock(t, a, "k")
		for _, f := range []fault{fails, refuses} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			time.AfterFunc(time.Second, func() { d.on(renew, 0, f) })
			_, err := b.Mutex("k").Lock(ctx)
			wantErr(t, err, leasehold.ErrUnknown, context.DeadlineExceeded) // the lock may be handed over meanwhile
			if errors.Is(err, leasehold.ErrHeld) {
				t.Errorf("%v says held, but the store has been silent for long", err)
			}
			d.heal()
			cancel()
		}
	})
}

// Its ticket is not there any more, so it asks anew when the store goes away.
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
				time.Sleep(time.Minute) // what is left is undone
			}
		}
		d.on(acquire, 2, fails) // it is queued in the end
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Mutex("k").Lock(ctx)
		wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
	})
}

func TestDo_PanicReleases(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		func() {
			defer func() { _ = recover() }()
			_ = leasehold.Do(t.Context(), c.Mutex("k"), func(context.Context) error { panic("in the middle") })
		}()
		wantFree(t, store, "k")
		reason := errors.New("reason")
		err := leasehold.Do(t.Context(), c.Mutex("k"), func(context.Context) error { return reason })
		wantErr(t, err, reason)
		wantFree(t, store, "k")
	})
}

func TestAcquire_HasTheShapeOfAContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		ctx, release, err := c.Acquire(t.Context(), "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.seen(acquire)[0].req.TTL; got != time.Minute {
			t.Errorf("TTL %v", got)
		}
		again, inner, err := c.Acquire(ctx, "k", 0)
		if err != nil || again.Err() != nil {
			t.Fatalf("re-entry: %v", err)
		}
		if err := errors.Join(inner(), release(), release()); err != nil {
			t.Error(err)
		}
		wantErr(t, context.Cause(ctx), leasehold.ErrReleased)
		wantFree(t, store, "k")
	})
}

func TestMaxWait_HR_D6_IsOneBoundForSeveralLocks(t *testing.T) {
	for name, opts := range map[string][]leasehold.Option{"queued": nil, "retried": {leasehold.WithRetry(leasehold.Constant(100 * time.Millisecond))}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
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
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
