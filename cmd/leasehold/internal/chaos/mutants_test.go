//go:build linux

package chaos_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
)

// These tests check the checker: they use drivers with deliberate bugs that lock libraries
// have had. The checker must find each of them within a few simulated hours.

// mutant is a bug of a driver. The rules without a mutant here are covered by the checker's
// own tests.
type mutant struct {
	name string
	// wants lists rules. The checker must report a violation of one of them.
	wants []string
	// tune changes the world so that the bug has an effect.
	tune func(w *world)
	// breaks returns a driver with the bug. The faults are added outside it.
	breaks func(w *world, d driver.Driver) driver.Driver
}

// tries bounds the number of worlds for each mutant. Most mutants are found in nearly every
// world, but the most hidden one only in 18 of 40: twelve worlds would miss it once in a
// thousand runs.
const tries = 60

func TestMutants_AreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			var found []string
			for range tries {
				w := m.world(rand.Uint64())
				v := w.run(t)
				found = append(found, v.Rules()...)
				if slices.ContainsFunc(v.Rules(), func(rule string) bool { return slices.Contains(m.wants, rule) }) {
					t.Logf("caught: %v", v.Violations[0])
					return
				}
			}
			t.Errorf("not caught in %d worlds; found %v, want one of %v", tries, found, m.wants)
		})
	}
}

func (m mutant) world(seed uint64) *world {
	w := newWorld(seed)
	w.lasting = 3 * time.Hour
	w.plan.TTL, w.plan.Hold, w.plan.Faulty = 5*time.Second, 8*time.Second, 0.1
	w.plan.Burst, w.plan.Contenders, w.procs, w.death = 2*time.Minute, 4, 4, time.Hour
	if m.tune != nil {
		m.tune(w)
	}
	sound := w.open
	w.open = func(w *world) driver.Driver { return m.breaks(w, sound(w)) }
	return w
}

// broken is a driver with some methods replaced.
type broken struct {
	driver.Driver
	acquire func(context.Context, driver.Request) (driver.Reply, error)
	renew   func(context.Context, driver.Ref) (driver.Reply, error)
	release func(context.Context, driver.Ref) (driver.Reply, error)
}

func (b *broken) Supports(req driver.Request) error { return driver.Supports(b.Driver, req) }

func (b *broken) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if b.acquire != nil {
		return b.acquire(ctx, req)
	}
	return b.Driver.Acquire(ctx, req)
}

func (b *broken) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if b.renew == nil {
		b.Driver.Renew(ctx, refs, each)
		return
	}
	for i, ref := range refs {
		reply, err := b.renew(ctx, ref)
		each(i, reply, err)
	}
}

func (b *broken) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if b.release != nil {
		return b.release(ctx, ref)
	}
	return b.Driver.Release(ctx, ref)
}

// one renews one ref.
func one(ctx context.Context, d driver.Driver, ref driver.Ref) (reply driver.Reply, err error) {
	d.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
	return reply, err
}

// with adds the Watcher of the sound driver to a broken one.
func with(b *broken) driver.Driver {
	if w, ok := b.Driver.(driver.Watcher); ok {
		return struct {
			*broken
			driver.Watcher
		}{b, w}
	}
	return b
}

var mutants = []mutant{
	{
		name: "release without owner check", wants: []string{checker.Exclusion},
		tune: func(w *world) { w.plan.Faulty = 0.5 },
		breaks: func(w *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, release: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
				reply, err := d.Release(ctx, ref)
				if err == nil && reply.State == driver.Gone {
					snap, _ := w.store.Inspect(ctx, ref.Key)
					for _, h := range snap.Holders {
						_, _ = d.Release(ctx, driver.Ref{Key: ref.Key, ID: h.ID})
					}
				}
				return reply, err
			}})
		},
	},
	{
		name: "queue that lets overtake", wants: []string{checker.Order},
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
				req.Policy = driver.Barging
				return d.Acquire(ctx, req)
			}})
		},
	},
	{
		name: "tokens repeat after a flush", wants: []string{checker.Tokens, checker.Fence},
		tune: func(w *world) {
			w.rules.Steady = false
			w.open = func(w *world) driver.Driver { return &flushed{w.store.Join(), w} }
		},
		breaks: func(_ *world, d driver.Driver) driver.Driver { return d },
	},
	{
		name: "busy names the asker", wants: []string{checker.Refusal},
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
				reply, err := d.Acquire(ctx, req)
				if err == nil && reply.State == driver.Busy && len(reply.Holders) > 0 {
					reply.Holders[0].Owner = req.Owner
				}
				return reply, err
			}})
		},
	},
	{
		name: "dead tickets block", wants: []string{checker.Wait, checker.Left},
		tune: func(w *world) { w.death = 10 * time.Minute },
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{
				Driver: d,
				acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
					if req.TicketTTL > 0 {
						req.TicketTTL, req.ConfirmWindow = 24*time.Hour, 24*time.Hour
					}
					return d.Acquire(ctx, req)
				},
				renew: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
					if ref.TicketTTL > 0 {
						ref.TicketTTL = 24 * time.Hour
					}
					return one(ctx, d, ref)
				},
			})
		},
	},
}

// flushed is a store that restarts its tokens every 20 minutes.
type flushed struct {
	*memdriver.Driver
	w *world
}

func (f *flushed) fewer(token int64) int64 {
	if token == 0 {
		return 0
	}
	hours := f.w.now() / int64(20*time.Minute)
	return token - f.w.start.UnixMicro() - hours*(20*time.Minute).Microseconds() + 1
}

func (f *flushed) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := f.Driver.Acquire(ctx, req)
	reply.Token = f.fewer(reply.Token)
	return reply, err
}

func (f *flushed) Watch(hear func(driver.Hint)) (driver.Subscription, error) {
	return f.Driver.Watch(func(h driver.Hint) {
		h.Token = f.fewer(h.Token)
		hear(h)
	})
}

func (f *flushed) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	f.Driver.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
		reply.Token = f.fewer(reply.Token)
		each(i, reply, err)
	})
}
