package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Act is an act that a contender repeats.
type Act func(c *contender, ctx context.Context)

// Acts are all acts.
var Acts = []Act{
	Contend, mutexes, stale, reentrant, owned, readersAndWriters, readersAndWriters, semaphores, Several, candidates, breakers,
}

// Contend waits for a mutex in its queue, for as long as it takes.
func Contend(c *contender, ctx context.Context) {
	see := Sighting{Key: c.Prefix + "queue", Exclusive: true}
	lease, err := c.Client.Mutex(see.Key).Lock(ctx)
	if err != nil {
		c.tell(ctx, err)
		return
	}
	see.Token = lease.Token()
	c.believe(ctx, lease, c.moment(), see)
	c.release(lease)
}

// mutexes takes a mutex in any way.
func mutexes(c *contender, ctx context.Context) {
	opts := c.impatient()
	if rand.IntN(3) == 0 {
		opts = append(opts, leasehold.WithPolicy(leasehold.Barging))
	}
	c.hold(ctx, mutex(c.Client, c.Prefix+"mutex", opts...), Sighting{Key: c.Prefix + "mutex", Exclusive: true})
}

// stale holds a lease for longer than it lasts, at times.
func stale(c *contender, ctx context.Context) {
	lease, ok := c.take(ctx, mutex(c.Client, c.Prefix+"stale", append(c.impatient(), leasehold.WithoutRenewal())...))
	if !ok {
		return
	}
	c.believe(ctx, lease, rand.N(3*c.TTL/2), Sighting{Key: c.Prefix + "stale", Exclusive: true, Token: lease.Token()})
	c.release(lease)
}

// reentrant takes a mutex twice, by its context.
func reentrant(c *contender, ctx context.Context) {
	s := mutex(c.Client, c.Prefix+"mutex", c.impatient()...)
	if outer, ok := c.take(ctx, s); ok {
		c.again(ctx, outer, s, outer.Context(), c.Prefix+"mutex")
	}
}

// owned takes a mutex twice, by its owner.
func owned(c *contender, ctx context.Context) {
	s := mutex(c.Client, c.Prefix+"owned", append(c.impatient(), leasehold.WithReentrantOwner(c.owner))...)
	if outer, ok := c.take(ctx, s); ok {
		c.again(ctx, outer, s, ctx, c.Prefix+"owned")
	}
}

// again re-enters under outer, which may have been lost since it was taken.
func (c *contender) again(ctx context.Context, outer *leasehold.Lease, s side, under context.Context, key string) {
	see := Sighting{Key: key, Exclusive: true, Token: outer.Token()}
	c.believe(ctx, outer, c.moment(), see)
	inner, err := s.lock(under)
	if err != nil {
		c.tell(ctx, err)
		c.release(outer)
		return
	}
	if rand.IntN(2) == 0 {
		outer, inner = inner, outer
	}
	// If one owner has two leases, the inner lease may be a fresh grant, because the outer one was
	// lost.
	see.Token = inner.Token()
	c.release(outer)
	c.believe(ctx, inner, c.moment(), see)
	c.release(inner)
}

// policies are the options of the read-write locks, by the name of their key.
var policies = map[string][]leasehold.Option{
	"fifo": nil, "writers": {leasehold.WithPolicy(leasehold.WritersFirst)}, "readers": {leasehold.WithPolicy(leasehold.ReadersFirst)},
}

func readersAndWriters(c *contender, ctx context.Context) {
	names := []string{"fifo", "writers", "readers"}
	name := names[rand.IntN(len(names))]
	plain := c.impatient()
	opts := append(slices.Clip(plain), policies[name]...)
	see := Sighting{Key: c.Prefix + name, Weight: 1}
	if rand.IntN(3) > 0 {
		c.hold(ctx, reader(c.Client, see.Key, opts...), see)
		return
	}
	write := writer(c.Client, see.Key, opts...)
	if rand.IntN(3) == 0 {
		write = mutex(c.Client, see.Key, plain...) // is the same lock
	}
	lease, ok := c.take(ctx, write)
	if !ok {
		return
	}
	see.Exclusive, see.Token = true, lease.Token()
	c.believe(ctx, lease, c.moment(), see)
	if rand.IntN(2) == 0 {
		err := lease.Downgrade(ctx)
		see.Exclusive = false // also after an error: another reader may hold the lock by now
		if err != nil && !errors.Is(err, leasehold.ErrNotHeld) {
			c.tell(ctx, err)
		}
		c.believe(ctx, lease, c.moment(), see)
	}
	c.release(lease)
}

func semaphores(c *contender, ctx context.Context) {
	const limit = 5
	see := Sighting{Key: c.Prefix + "places", Weight: 1 + rand.IntN(3), Limit: limit}
	take := places(see.Weight, limit)
	if rand.IntN(8) == 0 {
		take, see.Exclusive = mutex, true
	}
	c.hold(ctx, take(c.Client, see.Key, c.impatient()...), see)
}

// Several takes some of three locks together.
func Several(c *contender, ctx context.Context) {
	const limit = 2
	var locks []leasehold.Part
	see := make(map[string]Sighting)
	for _, i := range rand.Perm(3)[:1+rand.IntN(3)] {
		s := Sighting{Key: c.Prefix + "abc"[i:i+1], Weight: 1}
		opts := c.impatient()
		switch {
		case rand.IntN(2) == 0:
			s.Exclusive = true
			locks = append(locks, c.Client.Mutex(s.Key, opts...))
		case i == 2:
			s.Limit = limit
			locks = append(locks, c.Client.Semaphore(s.Key, limit, opts...))
		default:
			locks = append(locks, c.Client.RWMutex(s.Key, opts...).RLocker())
		}
		see[s.Key] = s
	}
	all := leasehold.All(locks...)
	ask := all.Lock
	if rand.IntN(6) == 0 {
		ask = all.TryLock
	}
	lease, err := ask(ctx)
	if err != nil {
		c.tell(ctx, err)
		return
	}
	var seen []Sighting
	for _, p := range lease.Parts() {
		s := see[p.Key()]
		s.Token = p.Token()
		seen = append(seen, s)
	}
	c.believe(ctx, lease, c.moment(), seen...)
	c.release(lease)
}

// candidates lead for a moment.
func candidates(c *contender, ctx context.Context) {
	key := c.Prefix + "leader"
	e := c.Client.Election(key, c.owner, leasehold.WithMaxWait(time.Second))
	err := e.Lead(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		who, err := e.Leader(ctx)
		if lease.State() == leasehold.Held && err == nil && (who.ID != lease.ID() || who.Value != c.owner) {
			c.Fail(fmt.Errorf("%s leads, and the store shows %s", lease.ID(), who.ID))
		}
		c.believe(ctx, lease, c.moment(), Sighting{Key: key, Exclusive: true, Token: lease.Token()})
		if rand.IntN(3) == 0 {
			e.Resign()
			if ctx.Err() == nil {
				c.Fail(errors.New("a term goes on after it was resigned"))
			}
		}
		return nil
	})
	c.tell(ctx, err)
}

// breakers hold a lock that is broken at times. It stays closed until the lease has run out for a
// holder that does not receive the break.
func breakers(c *contender, ctx context.Context) {
	key := c.Prefix + "broken"
	if rand.IntN(4) == 0 {
		c.breakUp(ctx, key)
		return
	}
	see := Sighting{Key: key, Weight: 1}
	take := use(reader)
	if rand.IntN(2) == 0 {
		take, see.Exclusive = writer, true
	}
	c.hold(ctx, take(c.Client, key, append(c.impatient(), leasehold.WithLockDelay(c.TTL))...), see)
}

// breakUp breaks a lease or a wait, chosen at random.
func (c *contender) breakUp(ctx context.Context, key string) {
	snap, err := c.Client.Inspect(ctx, key)
	var ids []string
	for _, h := range snap.Holders {
		ids = append(ids, h.ID)
	}
	for _, w := range snap.Waiters {
		ids = append(ids, w.ID)
	}
	if err != nil || len(ids) == 0 {
		return
	}
	err = c.Client.Break(ctx, key, ids[rand.IntN(len(ids))], "for a reason")
	switch {
	case err == nil:
		c.Did("broken")
	case !errors.Is(err, leasehold.ErrNotHeld): // the holder or waiter may have left before
		c.tell(ctx, err)
	}
}
