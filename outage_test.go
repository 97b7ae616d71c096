package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// away has every request of the store fail.
func away(d *faultDriver, f fault) {
	for _, v := range []verb{acquire, renew, release} {
		d.on(v, 0, f)
	}
}

// outages are how a store may be away.
var outages = map[string]fault{"refuses": refuses, "fails": fails, "hangs": hangs, "silent": silent}

// waits are how Lock may wait.
var waits = map[string][]leasehold.Option{"in the queue": nil, "alongside": {leasehold.WithRetry(leasehold.Alongside())}}

// eachWait runs f for each way to wait.
func eachWait(t *testing.T, f func(t *testing.T, store *memdriver.Driver, way []leasehold.Option)) {
	t.Helper()
	for name, opts := range waits {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) { f(t, store, slices.Clip(opts)) })
		})
	}
}

// eachOutage runs f for each outage and each way to wait.
func eachOutage(t *testing.T, f func(t *testing.T, store *memdriver.Driver, outage string, away fault, way []leasehold.Option)) {
	t.Helper()
	for name, away := range outages {
		t.Run(name, func(t *testing.T) {
			eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) { f(t, store, name, away, way) })
		})
	}
}

func TestLock_WaitsThroughAnOutage(t *testing.T) {
	eachOutage(t, func(t *testing.T, store *memdriver.Driver, _ string, f fault, way []leasehold.Option) {
		c, d := open(t, store, way...)
		for name, lock := range map[string]func(context.Context) (release func() error, err error){
			"Mutex":     releasing(c.Mutex("k").Lock),
			"RWMutex":   releasing(c.RWMutex("k").RLock),
			"Semaphore": releasing(c.Semaphore("k", 2).Lock),
			"All":       releasing(leasehold.All(c.Mutex("k"), c.Mutex("l")).Lock),
		} {
			for _, lasts := range []time.Duration{time.Second, 20 * time.Second} {
				away(d, f)
				time.AfterFunc(lasts, d.heal)
				start := time.Now()
				release, err := lock(t.Context())
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				// One try of a store that hangs may still be under way when it is back.
				if took := time.Since(start); took > 2*lasts+5*time.Second {
					t.Errorf("%s: an outage of %v cost %v", name, lasts, took)
				}
				if err := release(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// releasing returns lock with the Release of what it returns.
func releasing[L interface{ Release() error }](lock func(context.Context) (L, error)) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		l, err := lock(ctx)
		return l.Release, err
	}
}

// An outage is one attempt, however often the store is asked meanwhile.
func TestLock_AnOutageUsesUpOneAttempt(t *testing.T) {
	for name, f := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				a, _ := open(t, store)
				b, d := open(t, store, leasehold.WithRetry(leasehold.Backoff{Base: 10 * time.Second, Attempts: 3}))
				held := lock(t, a, "k")
				time.AfterFunc(5*time.Second, func() { away(d, f) })
				time.AfterFunc(25*time.Second, func() { d.heal(); _ = held.Release() })
				l, err := b.Mutex("k").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(); err != nil {
					t.Error(err)
				}
				if n := d.count(acquire); n < 3 {
					t.Errorf("the store was asked %d times", n)
				}

				held = lock(t, a, "k")
				away(d, f)
				time.AfterFunc(20*time.Second, d.heal)
				_, err = b.Mutex("k").Lock(t.Context())
				wantErr(t, err, leasehold.ErrHeld)
				if !strings.Contains(err.Error(), "3 attempts") {
					t.Error(err)
				}
				if err := held.Release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A call that waits in a queue already has the same patience as one that begins.
func TestLock_EndsWhenTheOutageIsLongerThanMaxOutage(t *testing.T) {
	for name, f := range outages {
		for _, queued := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, queued %v", name, queued), func(t *testing.T) {
				eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) {
					a, _ := open(t, store)
					b, d := open(t, store, way...)
					if queued {
						held := lock(t, a, "k")
						defer func() { _ = held.Release() }()
					}
					if !queued {
						away(d, f)
					}
					ends := make(chan error, 1)
					go func() {
						_, err := b.Mutex("k", leasehold.WithMaxOutage(7*time.Second)).Lock(context.Background())
						ends <- err
					}()
					if queued {
						time.Sleep(time.Minute)
						away(d, f)
					}
					start := time.Now()
					err := <-ends
					if errors.Is(err, leasehold.ErrUnknown) == errors.Is(err, leasehold.ErrUnavailable) {
						t.Errorf("%v is not one of ErrUnknown and ErrUnavailable", err)
					}
					if took := time.Since(start); took < time.Second || took > 20*time.Second {
						t.Errorf("it ended after %v", took)
					}
					if !strings.Contains(err.Error(), "asked for ") {
						t.Errorf("%v does not tell how long the store was asked", err)
					}
					d.heal()
					time.Sleep(2 * time.Minute)
					if !queued {
						wantFree(t, store, "k")
					}
				})
			})
		}
	}
}

// Whatever ends it, a wait for a store that is away says how long that was.
func TestLock_SaysForHowLongTheStoreWasAskedWhenItsCallerGivesUp(t *testing.T) {
	eachOutage(t, func(t *testing.T, store *memdriver.Driver, _ string, f fault, way []leasehold.Option) {
		for name, opts := range map[string][]leasehold.Option{"its context ends": nil, "WithMaxWait": {leasehold.WithMaxWait(7 * time.Second)}} {
			c, d := open(t, store, append(way, opts...)...)
			away(d, f)
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			_, err := c.Mutex("k").Lock(ctx)
			cancel()
			if err == nil || !strings.Contains(err.Error(), "asked for ") {
				t.Errorf("%s: %v does not tell how long the store was asked", name, err)
			}
		}
	})
}

func TestLock_WithoutPatienceFailsAtOnce(t *testing.T) {
	eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) {
		c, d := open(t, store, way...)
		d.on(acquire, 0, refuses)
		start := time.Now()
		_, err := c.Mutex("k", leasehold.WithMaxOutage(0)).Lock(t.Context())
		wantErr(t, err, leasehold.ErrUnavailable)
		if time.Since(start) != 0 || d.count(acquire) != 1 {
			t.Errorf("%d requests in %v", d.count(acquire), time.Since(start))
		}
	})
}

func TestLock_WithEndlessPatienceWaitsAsLongAsItsContext(t *testing.T) {
	eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) {
		c, d := open(t, store, append(way, leasehold.WithMaxOutage(-time.Second))...)
		away(d, refuses)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("k").Lock(ctx)
		wantErr(t, err, leasehold.ErrUnavailable, context.DeadlineExceeded)
		if took := time.Since(start); took != 30*time.Minute {
			t.Errorf("it took %v", took)
		}
		away(d, refuses)
		time.AfterFunc(20*time.Minute, d.heal)
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A wrong password does not get right by waiting.
func TestLock_WhatTimeDoesNotHealEndsAWaitAtOnce(t *testing.T) {
	for name, err := range map[string]error{
		"permanent": fmt.Errorf("wrong password: %w", driver.ErrPermanent),
		"invalid":   driver.ErrInvalid, "mismatch": driver.ErrMismatch,
	} {
		t.Run(name, func(t *testing.T) {
			eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) {
				c, d := open(t, store, append(way, leasehold.WithMaxOutage(-1))...)
				d.on(acquire, 0, fault{skip: true, err: err})
				start := time.Now()
				_, got := c.Mutex("k").Lock(t.Context())
				wantErr(t, got, err)
				if time.Since(start) != 0 || d.count(acquire) != 1 {
					t.Errorf("%d requests in %v", d.count(acquire), time.Since(start))
				}
				got = c.Election("k", "v").Lead(t.Context(), func(context.Context, *leasehold.Lease) error { return nil })
				wantErr(t, got, err)
			})
		})
	}
}

// A store that is out of memory renews leases and gives none.
func TestLock_ARefusalEndsAlthoughOthersAreServed(t *testing.T) {
	eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) {
		c, d := open(t, store, way...)
		lock(t, c, "other", leasehold.WithTTL(time.Second))
		d.on(acquire, 0, refuses)
		start := time.Now()
		_, err := c.Mutex("k").Lock(t.Context())
		wantErr(t, err, leasehold.ErrUnavailable)
		if took := time.Since(start); took > 31*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestTryLock_WaitsForNoOutage(t *testing.T) {
	eachWait(t, func(t *testing.T, store *memdriver.Driver, way []leasehold.Option) {
		c, d := open(t, store, append(way, leasehold.WithMaxOutage(-1))...)
		for f, most := range map[*fault]time.Duration{&refuses: time.Second, &hangs: 11 * time.Second} {
			away(d, *f)
			start := time.Now()
			_, err := c.Mutex("k").TryLock(t.Context())
			if err == nil || time.Since(start) > most {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			d.heal()
		}
	})
}

func TestElection_Lead_OutlivesAStoreThatIsAway(t *testing.T) {
	eachOutage(t, func(t *testing.T, store *memdriver.Driver, _ string, f fault, way []leasehold.Option) {
		c, d := open(t, store, append(way, leasehold.WithMaxOutage(time.Second))...)
		away(d, f) // at the start
		time.AfterFunc(10*time.Minute, d.heal)
		terms := 0
		err := c.Election("k", "v", leasehold.WithTTL(time.Second)).Lead(t.Context(), func(ctx context.Context, _ *leasehold.Lease) error {
			if terms++; terms == 3 {
				return nil
			}
			away(d, f) // and in the middle of a term
			time.AfterFunc(2*time.Hour, d.heal)
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil || terms != 3 {
			t.Errorf("%v after %d terms", err, terms)
		}
	})
}

func TestOutage_IsToldOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	eachOutage(t, func(t *testing.T, store *memdriver.Driver, name string, f fault, way []leasehold.Option) {
		var told []leasehold.OutageInfo
		var logged bytes.Buffer
		c, d := open(t, store, append(way, leasehold.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
			leasehold.WithObserver(leasehold.Observer{Outage: func(o leasehold.OutageInfo) { told = append(told, o) }}))...)
		for i, lasts := range []time.Duration{100 * time.Millisecond, 20 * time.Second, 20 * time.Second} {
			began := time.Now()
			away(d, f)
			time.AfterFunc(lasts, d.heal)
			l, err := c.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			synctest.Wait() // what is told is told in the background
			if i == 0 && name != "hangs" && name != "silent" && len(told) > 0 {
				t.Errorf("one lost request is an outage: %+v", told)
			}
			if i == 0 {
				told = nil
				logged.Reset()
				continue
			}
			if len(told) != 2*i || told[2*i-2].Over || !told[2*i-1].Over || told[2*i-2].Err == nil ||
				!told[2*i-2].Since.Equal(began) {
				t.Fatalf("%d, began %v: %+v", i, began, told)
			}
		}
		if begins, ends := strings.Count(logged.String(), "does not answer"), strings.Count(logged.String(), "answers again"); begins != 2 || ends != 2 {
			t.Errorf("%d lines of a beginning, %d of an end:\n%s", begins, ends, &logged)
		}
	})
}

// The store has granted the first of two locks, or one, and refuses from then on: whoever
// called has left a lease in the store, and is not told that nothing was done.
func TestOutage_WhatCouldNotBeGivenBackIsUnknown(t *testing.T) {
	works := func(context.Context) error { return nil }
	for name, call := range map[string]func(ctx context.Context, c *leasehold.Client) error{
		"All.Lock": func(ctx context.Context, c *leasehold.Client) error {
			_, err := leasehold.All(c.Mutex("a"), c.Mutex("b")).Lock(ctx)
			return err
		},
		"All.TryLock": func(ctx context.Context, c *leasehold.Client) error {
			_, err := leasehold.All(c.Mutex("a"), c.Mutex("b")).TryLock(ctx)
			return err
		},
		"Do": func(ctx context.Context, c *leasehold.Client) error {
			return leasehold.Do(ctx, c.Mutex("a"), works)
		},
		"TryDo": func(ctx context.Context, c *leasehold.Client) error {
			_, err := leasehold.TryDo(ctx, c.Mutex("a"), works)
			return err
		},
		"Lead": func(ctx context.Context, c *leasehold.Client) error {
			return c.Election("a", "").Lead(ctx, func(context.Context, *leasehold.Lease) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(time.Minute), leasehold.WithMaxOutage(10*time.Second))
				d.onKey(acquire, "b", 0, refuses)
				for _, verb := range []verb{renew, release} {
					d.on(verb, 0, refuses)
				}
				err := call(t.Context(), c)
				wantErr(t, err, leasehold.ErrUnknown)
				if errors.Is(err, leasehold.ErrUnavailable) {
					t.Errorf("%v says that nothing was done, and the store has a lease", err)
				}
				if !strings.Contains(err.Error(), "loading") {
					t.Errorf("%v does not say what failed", err)
				}
				d.heal()
			})
		})
	}
}

// The work of Do has been done, under a lease that was lost since the store refuses.
func TestOutage_ALossDuringWorkIsNotToldAsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		err := leasehold.Do(t.Context(), c.Mutex("a"), func(ctx context.Context) error {
			away(d, refuses)
			<-ctx.Done()
			return nil
		})
		wantErr(t, err, leasehold.ErrLost)
		if errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrUnknown) {
			t.Errorf("%v says more than that the lease was lost", err)
		}
		d.heal()
	})
}
