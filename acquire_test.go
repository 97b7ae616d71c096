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

// Acquisitions whose answers are lost, late, or of no interest any more.

func TestLock_L2_LostRepliesGiveOneHoldAndOneToken(t *testing.T) {
	for name, f := range map[string]fault{"lost": loses, "failed": fails, "refused": refuses} {
		for _, wait := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memdriver.Driver) {
					c, d := open(t, store)
					d.on(acquire, 2, f)
					m := c.Mutex("k")
					take := m.TryLock
					if wait {
						take = m.Lock
					}
					l, err := take(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					tries := d.seen(acquire)
					if len(tries) != 3 || tries[0].req.ID != tries[2].req.ID {
						t.Errorf("%d tries; every try has to have the same id", len(tries))
					}
					snap, _ := store.Inspect(t.Context(), "k")
					if len(snap.Holders) != 1 || snap.Token != l.Token() || snap.Holders[0].ID != l.ID() {
						t.Errorf("token %d, store: %+v", l.Token(), snap)
					}
					if err := l.Release(); err != nil {
						t.Error(err)
					}
					wantFree(t, store, "k")
				})
			})
		}
	}
}

func TestTryLock_L2_BusyAfterALostReplyNamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		a, _ := open(t, store, leasehold.WithName("holder"))
		b, d := open(t, store, leasehold.WithName("asker"))
		lock(t, a, "k")
		d.on(acquire, 1, fails)
		_, err := b.Mutex("k").TryLock(t.Context())
		wantErr(t, err, leasehold.ErrHeld)
		if held := new(leasehold.HeldError); !errors.As(err, &held) || held.Owner != "holder" {
			t.Errorf("refused by %v, want the holder", err)
		}
	})
}

func TestLock_L4_CancelledInFlightIsUndone(t *testing.T) {
	for name, f := range map[string]fault{"granted and silent": silent, "hung": hangs, "granted late": {delay: time.Second, late: time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store)
				d.on(acquire, 1, f)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(1500*time.Millisecond, cancel)
				start := time.Now()
				_, err := c.Mutex("k").Lock(ctx)
				wantErr(t, err, context.Canceled, leasehold.ErrUnknown)
				if errors.Is(err, leasehold.ErrHeld) {
					t.Errorf("%v says held, but the store did not answer", err)
				}
				if got := time.Since(start); got != 1500*time.Millisecond {
					t.Errorf("returned %v after the start, want with the cancellation", got)
				}
				synctest.Wait() // one round trip
				wantFree(t, store, "k")
				time.Sleep(time.Hour)
				if n := d.count(renew); n > 0 {
					t.Errorf("%d renewals of what nobody holds", n)
				}
			})
		})
	}
}

func TestLock_L4_UndoingIsRepeatedUntilTheStoreAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.on(acquire, 1, silent)
		d.on(release, 1, hangs)
		d.on(release, 2, loses)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("k").Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded, leasehold.ErrUnknown)
		time.Sleep(5 * time.Second)
		wantFree(t, store, "k")
	})
}

func TestLock_L4_RequestStillOnItsWayCannotLockLater(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.on(acquire, 1, fault{stray: 10 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("k").Lock(ctx)
		wantErr(t, err, leasehold.ErrUnknown)
		time.Sleep(15 * time.Second) // now it has arrived
		wantFree(t, store, "k")
	})
}

func TestRelease_StrayAcquireCannotReviveAReleasedLease(t *testing.T) {
	stray := fault{stray: 20 * time.Second, err: errReplyLost}
	t.Run("granted at once", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store)
			d.on(acquire, 1, stray)
			l, err := c.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(25 * time.Second)
			wantFree(t, store, "k")
		})
	})
	t.Run("granted after waiting", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, d := open(t, store)
			outer := lock(t, a, "k")
			d.on(acquire, 1, stray)
			time.AfterFunc(time.Second, func() { _ = outer.Release() })
			l, err := b.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(25 * time.Second)
			wantFree(t, store, "k")
		})
	})
	t.Run("given up waiting", func(t *testing.T) {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, _ := open(t, store)
			b, d := open(t, store)
			outer := lock(t, a, "k")
			d.on(acquire, 1, stray)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := b.Mutex("k").Lock(ctx)
			wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
			if err := outer.Release(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(25 * time.Second)
			wantFree(t, store, "k")
		})
	})
}

func TestLock_GrantThatTookLongerThanTheLeaseIsNotReturned(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(time.Second))
		d.on(acquire, 1, fault{late: 2 * time.Second}) // a server that stood still
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatalf("a stall during the acquire: %v", err)
		}
		if l.State() != leasehold.Held || l.Remaining() < 900*time.Millisecond {
			t.Errorf("a lease that is %v with %v left was returned", l.State(), l.Remaining())
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		d.on(acquire, 0, fault{late: 2 * time.Second})
		if l, err := c.Mutex("k").Lock(t.Context()); err == nil {
			t.Errorf("every answer takes longer than the lease, and yet: %v", l.State())
		}
		d.heal()
		time.Sleep(time.Second)
		wantFree(t, store, "k")
	})
}

func TestLock_StoreThatHangsForEverIsGivenUpInTime(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		d.on(acquire, 0, hangs)
		start := time.Now()
		_, err := c.Mutex("k").Lock(context.Background())
		wantErr(t, err, leasehold.ErrUnknown)
		if got := time.Since(start); got < 30*time.Second || got > 35*time.Second {
			t.Errorf("gave up after %v", got)
		}
	})
}

func TestLock_ErrorsTellWhatIsKnown(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault fault
		want  error
		not   error
	}{
		{"refused", refuses, leasehold.ErrUnavailable, leasehold.ErrUnknown},
		{"failed", fails, leasehold.ErrUnknown, leasehold.ErrHeld},
		{"mismatch", fault{skip: true, err: driver.ErrMismatch}, leasehold.ErrMismatch, leasehold.ErrUnknown},
		{"invalid", fault{skip: true, err: driver.ErrInvalid}, leasehold.ErrInvalid, leasehold.ErrUnknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store)
				d.on(acquire, 0, row.fault)
				for _, call := range []struct {
					take func(context.Context) (*leasehold.Lease, error)
					most time.Duration
				}{{c.Mutex("k").TryLock, 11 * time.Second}, {c.Mutex("k").Lock, 31 * time.Second}} {
					start := time.Now()
					_, err := call.take(t.Context())
					wantErr(t, err, row.want)
					if errors.Is(err, row.not) || errors.Is(err, leasehold.ErrHeld) || errors.Is(err, leasehold.ErrLost) {
						t.Errorf("%v also says something else", err)
					}
					if got := time.Since(start); got > call.most {
						t.Errorf("took %v", got)
					}
				}
			})
		})
	}
}

func TestLock_ContextThatHasEndedAsksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		reason := errors.New("the caller's reason")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		past, done := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer done()
		_, err := c.Mutex("k").Lock(ctx)
		wantErr(t, err, context.Canceled, reason)
		_, err = c.Mutex("k").TryLock(past)
		wantErr(t, err, context.DeadlineExceeded)
		if n := d.count(acquire); n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// What a lost answer costs the store does not depend on the life of the lease.
func TestLock_HR_D8_IdOfALostAnswerIsForbiddenForAMinute(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 24 * time.Hour} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store)
			d.on(acquire, 1, loses)
			lease, err := c.Mutex("k", leasehold.WithTTL(ttl), leasehold.WithoutRenewal()).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
			if seen := d.seen(release); len(seen) != 1 || seen[0].ref.RejectIDFor != time.Minute {
				t.Errorf("with a TTL of %v: released %+v, want the id forbidden for a minute", ttl, seen)
			}
		})
	}
}

// A store may give an id up after something went wrong with it: asking on cannot
// help then, neither in a try nor in a wait.
func TestLock_IdThatTheStoreGaveUpEndsInUnknown(t *testing.T) {
	for name, take := range map[string]func(*leasehold.Mutex, context.Context) (*leasehold.Lease, error){
		"try":  (*leasehold.Mutex).TryLock,
		"wait": (*leasehold.Mutex).Lock,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store)
				d.on(acquire, 1, fault{skip: true, err: leasehold.ErrNotReplicated})
				d.reply = func(v verb, r driver.Reply) driver.Reply {
					if v == acquire {
						return driver.Reply{State: driver.Gone}
					}
					return r
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := take(c.Mutex("k"), ctx)
				wantErr(t, err, leasehold.ErrUnknown, leasehold.ErrNotReplicated)
				if ctx.Err() != nil {
					t.Error("waited on for what cannot come")
				}
				synctest.Wait()
				if seen := d.seen(release); len(seen) != 1 || seen[0].ref.RejectIDFor == 0 {
					t.Errorf("released %+v, want the id forbidden", seen)
				}
			})
		})
	}
}
