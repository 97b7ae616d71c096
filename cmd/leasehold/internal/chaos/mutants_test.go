//go:build linux

package chaos_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// The checker is checked: drivers that are broken on purpose, in the ways in
// which lock libraries have been, each of which a few simulated hours must
// betray.

// mutant is a way to be broken.
type mutant struct {
	name string
	// wants are the rules of which one at least must be found violated.
	wants []string
	// tune makes the world one in which it matters.
	tune func(w *world)
	// breaks returns the broken form of a driver, before or behind the faults.
	breaks  func(w *world, d driver.Driver) driver.Driver
	outside bool
}

// tries bounds the worlds that a mutant is played in. Nearly every world betrays most of
// them, but the one that hides best only 18 of 40: twelve would miss it once in a thousand
// runs.
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

// TestMutants_ASoundDriverIsNot plays the worlds of the mutants without them.
func TestMutants_ASoundDriverIsNot(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		if m.name == "tokens repeat after a flush" {
			continue // its world is the mutation
		}
		t.Run(m.name, func(t *testing.T) {
			seed := rand.Uint64()
			w := m.world(seed)
			w.open, w.outer = newWorld(seed).open, nil
			if v := w.run(t); len(v.Violations) > 0 {
				t.Errorf("seed %d: %v", seed, v)
				w.dump(t)
			}
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
	if m.outside {
		w.outer = func(d driver.Driver) driver.Driver { return m.breaks(w, d) }
	} else {
		w.open = func(w *world) driver.Driver { return m.breaks(w, sound(w)) }
	}
	return w
}

// broken is a driver of which some verbs are replaced.
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

// with gives a broken driver the ears of the sound one.
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
		name: "renewal without owner check", wants: []string{checker.Exclusion},
		tune: func(w *world) { w.plan.Faulty = 0.6 },
		breaks: func(w *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, renew: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
				reply, err := one(ctx, d, ref)
				if err == nil && reply.State == driver.Gone {
					if snap, _ := w.store.Inspect(ctx, ref.Key); len(snap.Holders) > 0 {
						return driver.Reply{State: driver.Granted, Token: snap.Token}, nil
					}
				}
				return reply, err
			}})
		},
	},
	{
		name: "renewal creates the key again", wants: []string{checker.Refusal, checker.Wait, checker.Exclusion},
		tune: func(w *world) { w.plan.Faulty = 0.4 },
		breaks: func(w *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, renew: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
				reply, err := one(ctx, d, ref)
				if err == nil && reply.State == driver.Gone {
					return d.Acquire(ctx, driver.Request{Key: ref.Key, ID: ref.ID, TTL: ref.TTL, Owner: w.ownerOf(ref.ID)})
				}
				return reply, err
			}})
		},
	},
	{
		name: "deadline counted from the reply", wants: []string{checker.Exclusion},
		tune: func(w *world) { w.plan.Faulty = 0.7 },
		breaks: func(w *world, d driver.Driver) driver.Driver {
			// The store counts from the request; the library is made to count
			// from as much later as the reply takes.
			const transit = time.Second
			return with(&broken{
				Driver: d,
				acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
					req.TTL -= transit
					reply, err := d.Acquire(ctx, req)
					time.Sleep(transit)
					return reply, err
				},
				renew: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
					ref.TTL -= transit
					reply, err := one(ctx, d, ref)
					time.Sleep(transit)
					return reply, err
				},
			})
		},
	},
	{
		name: "plain maximum as the token of a quorum", wants: []string{checker.Tokens, checker.Fence},
		tune: func(w *world) {
			w.rules.Queue, w.rules.Steady = false, false
			w.plan.Kinds = []chaos.Kind{chaos.Mutex}
			q := newNaiveQuorum(w.seed)
			w.open = func(*world) driver.Driver { return q }
		},
		breaks: func(_ *world, d driver.Driver) driver.Driver { return d },
	},
	{
		name: "queue that forgets", wants: []string{checker.Wait, checker.Order},
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{
				Driver: d,
				acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
					reply, err := d.Acquire(ctx, req)
					if err == nil && reply.State == driver.Queued && reply.Position > 1 {
						_, err = d.Release(ctx, driver.Ref{Key: req.Key, ID: req.ID})
					}
					return reply, err
				},
				renew: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
					reply, err := one(ctx, d, ref)
					if err == nil && reply.State == driver.Gone && ref.TicketTTL > 0 {
						reply = driver.Reply{State: driver.Queued, Position: 2}
					}
					return reply, err
				},
			})
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
		name: "writers who jump the queue", wants: []string{checker.Order},
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
				if req.Mode == driver.Exclusive && len(req.ID)%2 == 0 && req.ID[0] < 'M' {
					req.Policy = driver.WritersFirst
				}
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
		name: "one place too many", wants: []string{checker.Exclusion},
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
				if req.Limit > 0 {
					req.Limit++
				}
				return d.Acquire(ctx, req)
			}})
		},
	},
	{
		name: "readers do not keep writers out", wants: []string{checker.Exclusion},
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			aside := func(key string) string { return key + " (readers)" }
			readers := make(map[string]bool)
			var mu sync.Mutex
			move := func(id, key string) string {
				mu.Lock()
				defer mu.Unlock()
				if readers[id] {
					return aside(key)
				}
				return key
			}
			return with(&broken{
				Driver: d,
				acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
					if req.Mode == driver.Shared && req.Limit == 0 {
						mu.Lock()
						readers[req.ID] = true
						mu.Unlock()
						req.Key = aside(req.Key)
					}
					return d.Acquire(ctx, req)
				},
				renew: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
					ref.Key = move(ref.ID, ref.Key)
					return one(ctx, d, ref)
				},
				release: func(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
					ref.Key = move(ref.ID, ref.Key)
					return d.Release(ctx, ref)
				},
			})
		},
	},
	{
		name: "unknown reported as no", wants: []string{checker.Refusal}, outside: true,
		tune: func(w *world) { w.plan.TTL = time.Minute },
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
				reply, err := d.Acquire(ctx, req)
				if err != nil && ctx.Err() == nil && req.TicketTTL == 0 {
					return driver.Reply{State: driver.Busy}, nil
				}
				return reply, err
			}})
		},
	},
	{
		name: "every try is a stranger", wants: []string{checker.Refusal},
		tune: func(w *world) { w.plan.TTL = time.Minute },
		breaks: func(_ *world, d driver.Driver) driver.Driver {
			return with(&broken{Driver: d, acquire: func(ctx context.Context, req driver.Request) (driver.Reply, error) {
				if req.TicketTTL == 0 {
					req.ID = req.ID[:10] + time.Now().Format("150405.000000")
				}
				return d.Acquire(ctx, req)
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

// ownerOf finds the attempt that asked with a lease id, for a key that is made
// again; it has granted the lease before.
func (w *world) ownerOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range slices.Backward(w.records) {
		if r.What == history.Got && r.Lease == id {
			return r.Attempt
		}
	}
	return ""
}

// flushed is a store that starts its tokens again from 1 with every hour.
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

// naiveQuorum takes the greatest token of a majority for that of the grant. The
// clocks of its nodes, from which they take their tokens, are apart.
type naiveQuorum struct {
	nodes []*memdriver.Driver
	mu    sync.Mutex
	rnd   *rand.Rand
}

func newNaiveQuorum(seed uint64) *naiveQuorum {
	q := &naiveQuorum{rnd: rand.New(rand.NewPCG(seed, 9))}
	return q
}

// up returns the nodes that answer this time.
func (q *naiveQuorum) up() []*memdriver.Driver {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.nodes == nil { // in the bubble, whose clock they take
		for range 3 {
			q.nodes = append(q.nodes, memdriver.New())
		}
	}
	i := q.rnd.IntN(6)
	var up []*memdriver.Driver
	for k, n := range q.nodes {
		if k != i {
			up = append(up, n)
		}
	}
	return up
}

func (q *naiveQuorum) Supports(req driver.Request) error {
	return driver.Supports(driver.FromBasic(nil), req)
}

func (q *naiveQuorum) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.TicketTTL = 0
	won, busy := driver.Reply{State: driver.Granted}, driver.Reply{State: driver.Busy}
	votes := 0
	for _, n := range q.up() {
		reply, err := n.Acquire(ctx, req)
		reply.Token += int64(slices.Index(q.nodes, n)) * time.Minute.Microseconds()
		switch {
		case err != nil:
		case reply.State == driver.Granted:
			votes++
			won.Token = max(won.Token, reply.Token)
		default:
			busy = reply
		}
	}
	if votes >= 2 {
		return won, nil
	}
	_, _ = q.Release(ctx, driver.Ref{Key: req.Key, ID: req.ID})
	return busy, nil
}

func (q *naiveQuorum) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i, ref := range refs {
		votes, token := 0, int64(0)
		for _, n := range q.nodes {
			if reply, err := one(ctx, n, ref); err == nil && reply.State == driver.Granted {
				votes, token = votes+1, max(token, reply.Token)
			}
		}
		if votes >= 2 {
			each(i, driver.Reply{State: driver.Granted, Token: token}, nil)
			continue
		}
		each(i, driver.Reply{State: driver.Gone}, nil)
	}
}

func (q *naiveQuorum) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	q.up()
	out := driver.Reply{State: driver.Gone}
	for _, n := range q.nodes {
		if reply, err := n.Release(ctx, ref); err == nil && reply.State == driver.Released {
			out = reply
		}
	}
	return out, nil
}

func (q *naiveQuorum) Close() error { return nil }
