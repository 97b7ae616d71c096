package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// Mix is a process in which many contenders use each kind of lock in every way. Their sightings
// go to a [Witness].
type Mix struct {
	Client *leasehold.Client
	Name   string        // of the process, unique
	Prefix string        // of all keys
	TTL    time.Duration // of the client's leases
	Pause  time.Duration // between two acts of a contender, at most

	Now  func() int64      // of a clock that all processes have in common
	See  func(Sighting)    // called with each sighting of a holder
	Did  func(what string) // called with the outcome of an act
	Fail func(error)       // called with an outcome that must never occur
}

// contender is a contender of a Mix.
type contender struct {
	*Mix
	owner string
}

// Run runs n contenders until ctx ends.
func (m *Mix) Run(ctx context.Context, n int, acts ...Act) {
	var wg sync.WaitGroup
	for i := range n {
		c := &contender{m, fmt.Sprintf("%s.%d", m.Name, i)}
		wg.Go(func() {
			for ctx.Err() == nil {
				acts[rand.IntN(len(acts))](c, ctx)
				time.Sleep(rand.N(m.Pause + 1))
			}
		})
	}
	wg.Wait()
}

// impatient returns options of a wait that ends.
func (c *contender) impatient() []leasehold.Option {
	opts := []leasehold.Option{leasehold.WithMaxWait(time.Millisecond + rand.N(time.Second))}
	if rand.IntN(5) == 0 {
		opts = append(opts, leasehold.WithRetry(leasehold.Exponential(time.Millisecond, 20*time.Millisecond)))
	}
	return opts
}

// moment is how long a lock is held: long enough for a renewal, at times.
func (c *contender) moment() time.Duration {
	if rand.IntN(50) == 0 {
		return rand.N(2 * c.TTL)
	}
	return rand.N(3 * time.Millisecond)
}

// hold takes a lock, reports sightings while it holds it, and releases it.
func (c *contender) hold(ctx context.Context, s side, see Sighting) {
	if rand.IntN(10) == 0 { // the caller gives up, while it waits or holds the lock
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		defer cancel()
	}
	if lease, ok := c.take(ctx, s); ok {
		see.Token = lease.Token()
		c.believe(ctx, lease, c.moment(), see)
		c.release(lease)
	}
}

func (c *contender) take(ctx context.Context, s side) (*leasehold.Lease, bool) {
	ask := s.lock
	if rand.IntN(6) == 0 {
		ask = s.try
	}
	lease, err := ask(ctx)
	if err != nil {
		c.tell(ctx, err)
	}
	return lease, err == nil
}

// believe reports the sightings while the lease lasts, at most for the given time.
func (c *contender) believe(ctx context.Context, lease leasehold.AnyLease, lasting time.Duration, see ...Sighting) {
	end := c.Now() + int64(lasting)
	for {
		// The time is read before the lease is checked, so that the lease lived at that time.
		now := c.Now()
		if lease.Context().Err() != nil {
			return
		}
		for _, s := range see {
			s.Owner, s.At = c.owner, now
			c.See(s)
		}
		if now > end || ctx.Err() != nil {
			return
		}
		time.Sleep(500 * time.Microsecond)
	}
}

func (c *contender) release(lease leasehold.AnyLease) {
	c.tell(context.Background(), lease.Release())
}

// tell counts the outcome of an act, and reports an outcome that must not occur.
func (c *contender) tell(ctx context.Context, err error) {
	for _, known := range []struct {
		err  error
		word string
	}{
		{leasehold.ErrBroken, "broken"}, {leasehold.ErrHeld, "held"}, {leasehold.ErrLost, "lost"},
		{leasehold.ErrUnknown, "unknown"}, {leasehold.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, known.err) {
			c.Did(known.word)
			return
		}
	}
	switch {
	case err == nil:
		c.Did("released")
	case ctx.Err() != nil:
		c.Did("ended")
	default:
		c.Did("wrong")
		c.Fail(err)
	}
}
