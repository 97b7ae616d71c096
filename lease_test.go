package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/memdriver"
)

// The rules of the lease clock, each in virtual time. Random faults never
// caught a library that breaks one of these.

const ttl = 10 * time.Second

// validity is how long a lease of ttl lasts on the local clock.
const validity = ttl - ttl/100 - 2*time.Millisecond

func TestLease_DeadlineCountsFromBeforeTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		d.on(acquire, 1, fault{delay: time.Second, late: 2 * time.Second})
		sent := time.Now()
		l := lock(t, c, "k")
		if got := l.Deadline().Sub(sent); got != validity {
			t.Errorf("deadline is %v after the sending, want %v", got, validity)
		}
		if got := l.Remaining(); got != validity-3*time.Second {
			t.Errorf("remaining %v, want %v", got, validity-3*time.Second)
		}
	})
}

func TestLease_DriftFactorShortensTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl), leasehold.WithDriftFactor(0.2))
		if got, want := lock(t, c, "k").Remaining(), 8*time.Second-2*time.Millisecond; got != want {
			t.Errorf("remaining %v, want %v", got, want)
		}
	})
}

func TestLease_RenewalCountsFromItsOwnSending(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		d.on(renew, 1, fault{late: time.Second})
		l := lock(t, c, "k")
		time.Sleep(ttl/3 + 1500*time.Millisecond)
		first := d.seen(renew)[0]
		if got := l.Deadline().Sub(first.at); got != validity {
			t.Errorf("deadline is %v after the renewal was sent, want %v", got, validity)
		}
	})
}

func TestLease_RetriedAcquireCountsFromTheTryThatWasAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		d.on(acquire, 2, fault{late: time.Second, err: errReplyLost})
		l := lock(t, c, "k")
		tries := d.seen(acquire)
		if len(tries) != 3 {
			t.Fatalf("%d tries, want 3", len(tries))
		}
		if got := l.Deadline().Sub(tries[2].at); got != validity {
			t.Errorf("deadline is %v after the last try, want %v", got, validity)
		}
		snap, _ := store.Inspect(t.Context(), "k")
		if end := time.Now().Add(snap.Holders[0].Remaining); !l.Deadline().Before(end) {
			t.Errorf("the holder believes until %v, the store keeps it until %v", l.Deadline(), end)
		}
	})
}

func TestLease_UnknownRenewalNeverMovesTheDeadline(t *testing.T) {
	for name, f := range map[string]fault{"reply lost": loses, "silent": silent, "failed": fails, "hung": hangs} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(ttl))
				l := lock(t, c, "k")
				want := l.Deadline()
				d.on(renew, 0, f)
				time.Sleep(validity - time.Millisecond)
				if got := l.Deadline(); !got.Equal(want) {
					t.Errorf("deadline moved by %v", got.Sub(want))
				}
				if l.State() != leasehold.Unconfirmed || l.Context().Err() != nil {
					t.Errorf("state %v, %v before the deadline, want unconfirmed", l.State(), l.Context().Err())
				}
				<-l.Context().Done()
				if got := time.Since(want); got != 0 {
					t.Errorf("the context ended %v after the deadline", got)
				}
				wantErr(t, context.Cause(l.Context()), leasehold.ErrLost)
				if f.err != nil {
					wantErr(t, context.Cause(l.Context()), f.err)
				}
			})
		})
	}
}

func TestLease_L8_NotYoursEndsTheLeaseAtOnceAndForEver(t *testing.T) {
	for _, taken := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			a, d := open(t, store, leasehold.WithTTL(ttl))
			b, _ := open(t, store)
			l := lock(t, a, "k")
			start := time.Now()
			// An administrator deletes the key.
			if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()}); err != nil {
				t.Fatal(err)
			}
			if taken {
				lock(t, b, "k")
			}
			<-l.Context().Done()
			if got := time.Since(start); got > ttl/3 {
				t.Errorf("learnt after %v, want one renewal period at most", got)
			}
			wantErr(t, context.Cause(l.Context()), leasehold.ErrLost)
			renewals := d.count(renew)
			time.Sleep(10 * ttl)
			if l.State() != leasehold.Lost || d.count(renew) != renewals || d.count(acquire) != 1 {
				t.Errorf("state %v, %d more renewals, %d acquires", l.State(), d.count(renew)-renewals, d.count(acquire))
			}
			if !taken {
				wantFree(t, store, "k")
			}
		})
	}
}

func TestLease_FirstRenewalAfterAThird(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		start := time.Now()
		l := lock(t, c, "k")
		time.Sleep(24 * time.Hour)
		if l.State() != leasehold.Held {
			t.Fatalf("state %v after a day", l.State())
		}
		for i, r := range d.seen(renew) {
			if got, want := r.at.Sub(start), time.Duration(i+1)*(ttl/3); got > want+time.Second || got < want-time.Second {
				t.Fatalf("renewal %d after %v, want %v", i+1, got, want)
			}
			if i == 100 {
				break
			}
		}
	})
}

func TestLease_RetriesAreCloseAndEachTryIsHalfOfWhatIsLeftAtMost(t *testing.T) {
	for name, f := range map[string]fault{"failing": fails, "hanging": hangs} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(ttl))
				l := lock(t, c, "k")
				deadline := l.Deadline()
				d.on(renew, 0, f)
				<-l.Context().Done()
				var last time.Time // when the try before ended
				tries := d.seen(renew)
				if len(tries) < 5 {
					t.Errorf("only %d tries", len(tries))
				}
				for i, r := range tries {
					left := deadline.Sub(r.at)
					if left <= 0 || r.budget > max(left/2, time.Millisecond) {
						t.Errorf("try %d: budget %v with %v left", i+1, r.budget, left)
					}
					if i > 0 && r.at.Sub(last) > ttl/12 {
						t.Errorf("try %d came %v after the one before had failed", i+1, r.at.Sub(last))
					}
					last = r.at
					if f.hang {
						last = r.at.Add(r.budget)
					}
				}
			})
		})
	}
}

func TestLease_L5_SilentStoreLosesLeaseByLocalDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		time.Sleep(time.Hour)
		deadline := l.Deadline()
		d.on(renew, 0, hangs)
		for !time.Now().Add(ttl / 3).After(deadline) {
			time.Sleep(time.Millisecond)
			deadline = l.Deadline()
		}
		<-l.Context().Done() // with a renewal in flight
		if got := time.Since(deadline); got != 0 {
			t.Errorf("lost %v after the deadline", got)
		}
	})
}

func TestLease_L6_BlipAtARenewalHeals(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuses, "failed": fails, "reply lost": loses, "hung": hangs} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(ttl))
				l := lock(t, c, "k")
				d.on(renew, 1, f)
				time.Sleep(ttl/3 + time.Millisecond)
				if !f.hang && l.State() != leasehold.Unconfirmed {
					t.Errorf("state %v right after the failure, want unconfirmed", l.State())
				}
				time.Sleep(ttl / 2)
				if l.State() != leasehold.Held || l.Context().Err() != nil {
					t.Errorf("state %v, %v after the store came back", l.State(), context.Cause(l.Context()))
				}
				time.Sleep(time.Hour)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestLease_L7_OneHungRenewalDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		d.onKey(renew, "hung", 0, hangs)
		hung := lock(t, c, "hung")
		var others []*leasehold.Lease
		for i := range 100 {
			others = append(others, lock(t, c, fmt.Sprint(i)))
		}
		<-hung.Context().Done()
		for range 5 {
			time.Sleep(ttl)
			for _, l := range others {
				if l.State() != leasehold.Held || l.Remaining() < ttl/2 {
					t.Fatalf("%s: %v, %v left", l.Key(), l.State(), l.Remaining())
				}
			}
		}
	})
}

func TestLease_LateAnswersChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		// Confirmed by the store in time, known to us after the deadline.
		d.on(renew, 1, silent)
		d.on(renew, 0, fails)
		<-l.Context().Done()
		time.Sleep(time.Minute)
		if l.State() != leasehold.Lost || l.Remaining() != 0 {
			t.Errorf("state %v, remaining %v: a lease that was lost came back", l.State(), l.Remaining())
		}
		wantErr(t, l.Extend(t.Context(), ttl), leasehold.ErrNotHeld, leasehold.ErrLost)
		wantErr(t, l.Release(), leasehold.ErrLost)
	})
}

func TestLease_LookAfterAStoppedProcessSaysLostBeforeAnyTimer(t *testing.T) {
	looks := map[string]func(*leasehold.Lease) bool{
		"Err":       func(l *leasehold.Lease) bool { return l.Context().Err() != nil },
		"Cause":     func(l *leasehold.Lease) bool { return errors.Is(context.Cause(l.Context()), leasehold.ErrLost) },
		"State":     func(l *leasehold.Lease) bool { return l.State() == leasehold.Lost },
		"Remaining": func(l *leasehold.Lease) bool { return l.Remaining() == 0 },
		"Token":     func(l *leasehold.Lease) bool { l.Token(); <-l.Context().Done(); return true },
		"Extend": func(l *leasehold.Lease) bool {
			return errors.Is(l.Extend(context.Background(), ttl), leasehold.ErrLost)
		},
		"Release": func(l *leasehold.Lease) bool { return errors.Is(l.Release(), leasehold.ErrLost) },
	}
	for name, lost := range looks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, _ := open(t, store, leasehold.WithTTL(ttl))
				l := lock(t, c, "k")
				time.Sleep(time.Second)
				at := time.Now()
				clock.Advance(ttl) // no timer runs
				if !lost(l) {
					t.Error("the first look found the lease alive")
				}
				if passed := time.Since(at); passed != 0 {
					t.Errorf("it took %v of timers", passed)
				}
			})
		})
	}
}

func TestLease_StoppedProcessEndsTheContextAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store, leasehold.WithTTL(ttl))
		l := lock(t, c, "k")
		clock.Advance(ttl)
		start := time.Now()
		<-l.Context().Done() // nobody looks
		if got := time.Since(start); got > ttl/3 {
			t.Errorf("the context ended %v after the machine woke", got)
		}
	})
}

func TestLease_EveryGoroutineSeesTheLossAtItsFirstLook(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, _ := open(t, store, leasehold.WithTTL(ttl))
			l := lock(t, c, "k")
			clock.Advance(ttl)
			for range 4 {
				go func() {
					if l.Context().Err() == nil {
						t.Error("a look after the deadline found the context alive")
					}
				}()
			}
			synctest.Wait()
		})
	}
}

// The lease is asked for when a third of it has passed, also if the answer to the
// acquire came later than that.
func TestLease_HR_C3_RenewalCountsFromTheSendingAsTheDeadlineDoes(t *testing.T) {
	for _, late := range []time.Duration{500 * time.Millisecond, 2100 * time.Millisecond, 2900 * time.Millisecond} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			const ttl = 3 * time.Second
			c, d := open(t, store, leasehold.WithTTL(ttl))
			sent := time.Now()
			d.on(acquire, 1, fault{late: late})
			l := lock(t, c, "k")
			time.Sleep(ttl)
			if l.State() != leasehold.Held {
				t.Errorf("answered after %v: %v, %v", late, l.State(), context.Cause(l.Context()))
			}
			if got := d.seen(renew)[0].at.Sub(sent); got != max(ttl/3, late) {
				t.Errorf("answered after %v: renewed %v after the sending, want %v", late, got, max(ttl/3, late))
			}
			time.Sleep(time.Hour)
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A TTL of a minute is for long outages, and no reason to notice late that one is
// over.
func TestLease_HR_H10_IsRenewedSoonAfterAnOutage(t *testing.T) {
	const ttl = time.Minute
	for name, row := range map[string]struct {
		fault fault
		away  time.Duration
		soon  time.Duration
		tries int
	}{
		"refused for long":          {refuses, 23 * time.Second, time.Second, 35},
		"refused for a moment":      {refuses, 300 * time.Millisecond, 500 * time.Millisecond, 5},
		"not answered for a moment": {fails, 300 * time.Millisecond, 500 * time.Millisecond, 5},
		"not answered for long":     {fails, 25 * time.Second, ttl / 12, 12},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(ttl))
				l := lock(t, c, "k")
				d.on(renew, 0, row.fault)
				time.Sleep(ttl/3 + row.away)
				n := d.count(renew)
				d.heal()
				back := time.Now()
				for l.State() != leasehold.Held {
					time.Sleep(time.Millisecond)
				}
				if got := time.Since(back); got > row.soon {
					t.Errorf("renewed %v after the store came back, want %v", got, row.soon)
				}
				if n > row.tries {
					t.Errorf("%d tries while it was away, want %d at most", n, row.tries)
				}
			})
		})
	}
}
