package leasehold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func TestLock_WaitsThroughAnOutage(t *testing.T) {
	for name, f := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store)
				for _, lasts := range []time.Duration{time.Second, 20 * time.Second} {
					away(d, f)
					time.AfterFunc(lasts, d.heal)
					start := time.Now()
					l, err := c.Mutex("k").Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					// One try of a store that hangs may still be under way when it is back.
					if took := time.Since(start); took > 2*lasts+5*time.Second {
						t.Errorf("an outage of %v cost %v", lasts, took)
					}
					if err := l.Release(); err != nil {
						t.Error(err)
					}
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
				bubble(t, func(t *testing.T, store *memdriver.Driver) {
					a, _ := open(t, store)
					b, d := open(t, store)
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

func TestLock_WithoutPatienceFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
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
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithMaxOutage(-time.Second))
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
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithMaxOutage(-1))
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
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
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
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithMaxOutage(-1))
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
	for name, f := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithMaxOutage(time.Second))
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
		})
	}
}

func TestOutage_IsToldOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	for name, f := range outages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				var told []leasehold.OutageInfo
				var logged bytes.Buffer
				c, d := open(t, store, leasehold.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
					leasehold.WithObserver(leasehold.Observer{Outage: func(o leasehold.OutageInfo) { told = append(told, o) }}))
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
					if i == 0 && name != "hangs" && name != "silent" && len(told) > 0 {
						t.Errorf("one lost request is an outage: %+v", told)
					}
					if i == 0 {
						told = nil
						synctest.Wait()
						logged.Reset()
						continue
					}
					if len(told) != 2*i || told[2*i-2].Over || !told[2*i-1].Over || told[2*i-2].Err == nil ||
						!told[2*i-2].Since.Equal(began) {
						t.Fatalf("%d, began %v: %+v", i, began, told)
					}
				}
				synctest.Wait() // the lines are written in the background
				if begins, ends := strings.Count(logged.String(), "does not answer"), strings.Count(logged.String(), "answers again"); begins != 2 || ends != 2 {
					t.Errorf("%d lines of a beginning, %d of an end:\n%s", begins, ends, &logged)
				}
			})
		})
	}
}
