package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
)

// What is given back, and what is told of it.

// The server stops for seven seconds, and then does what it was asked meanwhile.
func TestTryLock_HR_A7_IsUndoneByAStoreThatComesBackAfterAWhile(t *testing.T) {
	for _, away := range []time.Duration{7 * time.Second, 25 * time.Second} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store)
			d.on(acquire, 0, fault{stray: away})
			d.on(release, 0, hangs)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.Mutex("k").TryLock(ctx)
			wantErr(t, err, leasehold.ErrUnknown)
			time.Sleep(away - time.Second)
			d.heal()
			time.Sleep(4 * time.Second)
			synctest.Wait()
			wantFree(t, store, "k")
		})
	}
}

// The lease may live for another TTL, and nobody else knows of it.
func TestRelease_HR_A7_GoesOnWhenItWasNotConfirmed(t *testing.T) {
	for name, f := range map[string]fault{"hangs": hangs, "fails": fails, "refuses": refuses} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store)
				l := lock(t, c, "k")
				d.on(release, 0, f)
				if err := l.Release(); err == nil {
					t.Fatal("confirmed by nobody")
				}
				time.Sleep(10 * time.Second)
				d.heal()
				time.Sleep(4 * time.Second)
				synctest.Wait()
				wantFree(t, store, "k")
				n := d.count(release)
				time.Sleep(time.Hour)
				if got := d.count(release); got != n {
					t.Errorf("%d more releases after an answer", got-n)
				}
			})
		})
	}
}

func TestRelease_HR_A7_EndsWithTheLeaseOrTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		l := lock(t, c, "k")
		d.on(release, 0, fails)
		_ = l.Release()
		time.Sleep(time.Minute)
		n := d.count(release)
		time.Sleep(time.Hour)
		if got := d.count(release); got != n {
			t.Errorf("%d releases of a lease that is over by itself", got-n)
		}
		d.heal()
		// A program that ends has waited for the release already.
		l = lock(t, c, "k2")
		d.on(release, 0, hangs)
		_ = l.Release()
		for range 3 {
			start := time.Now()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if got := time.Since(start); got != 0 {
				t.Errorf("closed after %v", got)
			}
		}
	})
}

// A store that certainly did nothing until the lease had run out has not lost it.
func TestRelease_HR_H1_LossIsJudgedAtTheMomentOfTheCall(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuses, "failed": fails, "hung": hangs} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store, leasehold.WithTTL(3*time.Second))
				l := lock(t, c, "k")
				time.Sleep(900 * time.Millisecond)
				s := d.on(release, 0, f)
				time.AfterFunc(4*time.Second, func() { d.mu.Lock(); s.left = 0; d.mu.Unlock() })
				if err := l.Release(); err != nil {
					t.Errorf("the lease was live when it was released: %v", err)
				}
				if s := c.Stats(); s.Lost != 0 || s.Released != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
	// One that had been taken away is told as before, also after a refusal.
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		l := lock(t, c, "k")
		d.on(release, 1, refuses)
		if _, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()}); err != nil {
			t.Fatal(err)
		}
		wantErr(t, l.Release(), leasehold.ErrLost)
	})
}

// Stats count what observers are told.
func TestStats_HR_H9_AgreeWithWhatObserversAreTold(t *testing.T) {
	for name, life := range map[string]func(t *testing.T, store *memdriver.Driver, l *leasehold.Lease, d *faultDriver){
		"released": func(*testing.T, *memdriver.Driver, *leasehold.Lease, *faultDriver) {},
		"renewed":  func(*testing.T, *memdriver.Driver, *leasehold.Lease, *faultDriver) { time.Sleep(ttl) },
		"renewal found it gone": func(t *testing.T, store *memdriver.Driver, l *leasehold.Lease, _ *faultDriver) {
			_, _ = store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()})
			time.Sleep(ttl)
		},
		"release found it gone": func(t *testing.T, store *memdriver.Driver, l *leasehold.Lease, _ *faultDriver) {
			_, _ = store.Release(t.Context(), driver.Ref{Key: "k", ID: l.ID()})
		},
		"failed, and late": func(_ *testing.T, _ *memdriver.Driver, l *leasehold.Lease, d *faultDriver) {
			d.on(renew, 2, fails)
			d.on(renew, 0, fault{late: ttl})
			<-l.Context().Done()
			time.Sleep(ttl)
		},
		"maximum hold": func(_ *testing.T, _ *memdriver.Driver, l *leasehold.Lease, _ *faultDriver) { time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				var told leasehold.Stats
				o := leasehold.Observer{
					Renewed: func(_ context.Context, e leasehold.RenewedInfo) {
						if e.Err == nil {
							told.Renewed++
						} else {
							told.Failed++
						}
					},
					Ended: func(_ context.Context, e leasehold.EndedInfo) {
						if e.Lost() {
							told.Lost++
						} else {
							told.Released++
						}
					},
					Released: func(_ context.Context, e leasehold.ReleasedInfo) {
						if e.Outcome() == "lost" { // found only now
							told.Lost, told.Released = told.Lost+1, told.Released-1
						}
					},
				}
				c, d := open(t, store, leasehold.WithTTL(ttl), leasehold.WithMaxHold(45*time.Second), leasehold.WithObserver(o))
				l := lock(t, c, "k")
				life(t, store, l, d)
				d.heal()
				_ = l.Release()
				synctest.Wait()
				got := c.Stats()
				got.Granted, got.Held = 0, 0
				if got != told {
					t.Errorf("stats %+v, observers were told %+v", got, told)
				}
			})
		})
	}
}

// The first try may have had its effect, which the second, that the store certainly
// refused, does not undo.
func TestUncertain_HR_A2_ARefusalAfterALostAnswerIsNotDefinite(t *testing.T) {
	for _, row := range []struct {
		name string
		verb verb
		do   func(*leasehold.Client, *leasehold.Lease) error
	}{
		{"TryLock", acquire, func(c *leasehold.Client, _ *leasehold.Lease) error {
			_, err := c.Mutex("other").TryLock(context.Background())
			return err
		}},
		{"Lock", acquire, func(c *leasehold.Client, _ *leasehold.Lease) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := c.Mutex("other").Lock(ctx)
			return err
		}},
		{"Adopt", renew, func(c *leasehold.Client, l *leasehold.Lease) error {
			_, err := c.Mutex("k").Adopt(context.Background(), l.ID())
			return err
		}},
		{"Release", release, func(_ *leasehold.Client, l *leasehold.Lease) error { return l.Release() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memdriver.Driver) {
				c, d := open(t, store)
				l := lock(t, c, "k")
				if row.verb == renew {
					if err := l.Detach(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				d.on(row.verb, 1, loses)
				d.on(row.verb, 0, refuses)
				err := row.do(c, l)
				wantErr(t, err, leasehold.ErrUnknown)
				if errors.Is(err, leasehold.ErrUnavailable) {
					t.Errorf("%v says that nothing was done", err)
				}
				if !errors.Is(err, errStoreIsLoading) && !strings.Contains(err.Error(), "loading") {
					t.Errorf("%v does not say what failed last", err)
				}
				d.heal()
			})
		})
	}
}

// A downgrade that was refused after one of unknown outcome does not make the lease
// a writer's again for certain.
func TestUncertain_HR_A2_ADowngradeRefusedAfterALostAnswerIsNotDefinite(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		_, w, d := writer(t, store)
		d.on(acquire, 1, loses)
		wantErr(t, w.Downgrade(t.Context()), leasehold.ErrUnknown)
		d.on(acquire, 1, refuses)
		err := w.Downgrade(t.Context())
		wantErr(t, err, leasehold.ErrUnknown)
		if errors.Is(err, leasehold.ErrUnavailable) {
			t.Errorf("%v says that nothing was done", err)
		}
	})
}
