package locktest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
)

// contender uses each kind of lock in every way, and reports when it saw a lease alive.
type contender struct {
	*lab
	client  *leasehold.Client
	owner   string // unique
	witness *witness
}

// acts are the acts of a contender.
var acts = []func(c *contender, ctx context.Context){
	(*contender).queues, (*contender).mutexes, (*contender).outstays, (*contender).reenters, (*contender).reenters,
	(*contender).readsOrWrites, (*contender).readsOrWrites, (*contender).semaphores, (*contender).several,
	(*contender).leads, (*contender).breaks,
}

// side returns a lock under the key of the case.
func (c *contender) side(u use, key string, opts ...leasehold.Option) side {
	return u(c.client, c.key+"/"+key, opts...)
}

// impatient returns options of a wait that ends.
func (c *contender) impatient() []leasehold.Option {
	opts := []leasehold.Option{leasehold.WithMaxWait(time.Millisecond + rand.N(time.Second))}
	if rand.IntN(5) == 0 {
		opts = append(opts, leasehold.WithRetry(leasehold.Exponential(time.Millisecond, 20*time.Millisecond)))
	}
	return opts
}

// hold takes a lock, reports sightings while it holds it, and releases it.
func (c *contender) hold(ctx context.Context, u use, see sighting, opts ...leasehold.Option) {
	if rand.IntN(10) == 0 { // the caller gives up, while it waits or holds the lock
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		defer cancel()
	}
	if lease, ok := c.take(ctx, c.side(u, see.key, opts...)); ok {
		c.believe(ctx, lease, moment(), see.by(lease))
		c.gives(lease)
	}
}

func (c *contender) take(ctx context.Context, s side) (*leasehold.Lease, bool) {
	ask := s.lock
	if rand.IntN(6) == 0 {
		ask = s.try
	}
	lease, err := ask(ctx)
	c.tell(ctx, err)
	return lease, err == nil
}

// moment is how long a lock is held: long enough for a renewal, at times.
func moment() time.Duration {
	if rand.IntN(50) == 0 {
		return rand.N(2 * mortality)
	}
	return rand.N(3 * time.Millisecond)
}

// believe reports the sightings while the lease lasts, at most for the given time.
func (c *contender) believe(ctx context.Context, lease leasehold.AnyLease, lasting time.Duration, see ...sighting) {
	for end := time.Now().Add(lasting); ; time.Sleep(500 * time.Microsecond) {
		// The time is read before the lease is checked, so that the lease lived at that time.
		now := time.Now()
		if lease.Context().Err() != nil {
			return
		}
		for _, s := range see {
			c.witness.see(c.owner, s, now)
		}
		if now.After(end) || ctx.Err() != nil {
			return
		}
	}
}

func (c *contender) gives(lease leasehold.AnyLease) { c.tell(context.Background(), lease.Release()) }

// tell fails the case if an act had an outcome that must never occur.
func (c *contender) tell(ctx context.Context, err error) {
	known := func(want error) bool { return errors.Is(err, want) }
	all := []error{leasehold.ErrBroken, leasehold.ErrHeld, leasehold.ErrLost, leasehold.ErrUnknown, leasehold.ErrUnavailable}
	if err != nil && !slices.ContainsFunc(all, known) && ctx.Err() == nil {
		c.Errorf("%s: %v", c.owner, err)
	}
}

// queues waits for a mutex for as long as it takes.
func (c *contender) queues(ctx context.Context) {
	c.hold(ctx, mutex, sighting{key: "queue", exclusive: true})
}

// mutexes takes a mutex in any way.
func (c *contender) mutexes(ctx context.Context) {
	opts := c.impatient()
	if rand.IntN(3) == 0 {
		opts = append(opts, leasehold.WithPolicy(leasehold.Barging))
	}
	c.hold(ctx, mutex, sighting{key: "mutex", exclusive: true}, opts...)
}

// outstays holds a lease for longer than it lasts, at times.
func (c *contender) outstays(ctx context.Context) {
	lease, ok := c.take(ctx, c.side(mutex, "stale", append(c.impatient(), leasehold.WithoutRenewal())...))
	if ok {
		c.believe(ctx, lease, rand.N(3*mortality/2), sighting{key: "stale", exclusive: true}.by(lease))
		c.gives(lease)
	}
}

// reenters takes a mutex twice, by its context or by its owner. The outer lease may have been lost
// before it re-enters.
func (c *contender) reenters(ctx context.Context) {
	see, opts, owned := sighting{key: "mutex", exclusive: true}, c.impatient(), rand.IntN(2) == 0
	if owned {
		see.key, opts = "owned", append(opts, leasehold.WithReentrantOwner(c.owner))
	}
	s := c.side(mutex, see.key, opts...)
	outer, ok := c.take(ctx, s)
	if !ok {
		return
	}
	c.believe(ctx, outer, moment(), see.by(outer))
	under := ctx
	if !owned {
		under = outer.Context()
	}
	inner, err := s.lock(under)
	if err != nil {
		c.tell(ctx, err)
		c.gives(outer)
		return
	}
	if rand.IntN(2) == 0 {
		outer, inner = inner, outer
	}
	c.gives(outer)
	c.believe(ctx, inner, moment(), see.by(inner)) // it has another token if the outer lease was lost
	c.gives(inner)
}

func (c *contender) readsOrWrites(ctx context.Context) {
	policies := []leasehold.Policy{leasehold.FIFO, leasehold.WritersFirst, leasehold.ReadersFirst}
	i := rand.IntN(len(policies))
	see := sighting{key: []string{"fifo", "writers", "readers"}[i], weight: 1}
	plain := c.impatient()
	opts := append(slices.Clip(plain), leasehold.WithPolicy(policies[i]))
	if rand.IntN(3) > 0 {
		c.hold(ctx, reader, see, opts...)
		return
	}
	write := c.side(writer, see.key, opts...)
	if rand.IntN(3) == 0 {
		write = c.side(mutex, see.key, plain...) // is the same lock
	}
	lease, ok := c.take(ctx, write)
	if !ok {
		return
	}
	see.exclusive = true
	c.believe(ctx, lease, moment(), see.by(lease))
	if rand.IntN(2) == 0 {
		err := lease.Downgrade(ctx)
		see.exclusive = false // also after an error: another reader may hold the lock by now
		if !errors.Is(err, leasehold.ErrNotHeld) {
			c.tell(ctx, err)
		}
		c.believe(ctx, lease, moment(), see.by(lease))
	}
	c.gives(lease)
}

func (c *contender) semaphores(ctx context.Context) {
	see := sighting{key: "places", weight: 1 + rand.IntN(3), limit: 5}
	take := places(see.weight, see.limit)
	if rand.IntN(8) == 0 {
		take, see.exclusive = mutex, true
	}
	c.hold(ctx, take, see, c.impatient()...)
}

// several takes some of three locks together.
func (c *contender) several(ctx context.Context) {
	var locks []leasehold.Part
	see := make(map[string]sighting)
	for _, i := range rand.Perm(3)[:1+rand.IntN(3)] {
		s, opts := sighting{key: "abc"[i : i+1], weight: 1}, c.impatient()
		key := c.key + "/" + s.key
		switch {
		case rand.IntN(2) == 0:
			s.exclusive = true
			locks = append(locks, c.client.Mutex(key, opts...))
		case i == 2:
			s.limit = 2
			locks = append(locks, c.client.Semaphore(key, s.limit, opts...))
		default:
			locks = append(locks, c.client.RWMutex(key, opts...).RLocker())
		}
		see[key] = s
	}
	ask := leasehold.All(locks...).Lock
	if rand.IntN(6) == 0 {
		ask = leasehold.All(locks...).TryLock
	}
	lease, err := ask(ctx)
	if err != nil {
		c.tell(ctx, err)
		return
	}
	var seen []sighting
	for _, p := range lease.Parts() {
		seen = append(seen, see[p.Key()].by(p))
	}
	c.believe(ctx, lease, moment(), seen...)
	c.gives(lease)
}

// leads leads for a moment.
func (c *contender) leads(ctx context.Context) {
	e := c.client.Election(c.key+"/leader", c.owner, leasehold.WithMaxWait(time.Second))
	err := e.Lead(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		who, err := e.Leader(ctx)
		if lease.State() == leasehold.Held && err == nil && (who.ID != lease.ID() || who.Value != c.owner) {
			c.Errorf("%s leads, and the store shows %s", lease.ID(), who.ID)
		}
		c.believe(ctx, lease, moment(), sighting{key: "leader", exclusive: true}.by(lease))
		if rand.IntN(3) == 0 {
			if e.Resign(); ctx.Err() == nil {
				c.Error("a term goes on after it was resigned")
			}
		}
		return nil
	})
	c.tell(ctx, err)
}

// breaks holds a lock that is broken at times, or breaks it. It stays closed until the lease has
// run out for a holder that does not receive the break.
func (c *contender) breaks(ctx context.Context) {
	see := sighting{key: "broken", weight: 1}
	if rand.IntN(4) > 0 {
		take := use(reader)
		if rand.IntN(2) == 0 {
			take, see.exclusive = writer, true
		}
		c.hold(ctx, take, see, append(c.impatient(), leasehold.WithLockDelay(mortality))...)
		return
	}
	key := c.key + "/" + see.key
	snap, err := c.client.Inspect(ctx, key)
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
	err = c.client.Break(ctx, key, ids[rand.IntN(len(ids))], "for a reason")
	if !errors.Is(err, leasehold.ErrNotHeld) { // the holder or waiter may have left before
		c.tell(ctx, err)
	}
}
