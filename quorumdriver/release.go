package quorumdriver

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/driver"
)

// Release implements [driver.Driver]. It asks all nodes and answers as soon as a
// majority has. Those that have not are released in the background, also those
// that have not answered the acquire yet, each for the timeout at most. The answer
// is Released if a majority had the lease, and Left if it was only waited for.
func (s *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	l := s.use(leaseKey{ref.Key, ref.ID})
	defer s.leave(l)
	if ref.Visit == "" {
		l.end() // with Visit it may turn out to be somebody else's
	}
	partings := s.park(l, ref)
	r := ask(ctx, s, l, s.everyone(), s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		if p := partings[i]; p != nil {
			return p.wait(ctx)
		}
		return s.depart(ctx, l, i, ref, false)
	})
	defer r.finish(nil)
	reply, err := s.parted(r)
	if err == nil && reply.State != driver.Busy {
		l.endTold()
	}
	return reply, err
}

// wait waits for a release whose turn is still to come.
func (p *parting) wait(ctx context.Context) (driver.Reply, error) {
	select {
	case <-p.done:
		return p.reply, p.err
	case <-ctx.Done():
		return driver.Reply{}, context.Cause(ctx)
	}
}

// parted counts the answers to a release, or to a break.
func (s *Driver) parted(r *round[driver.Reply]) (driver.Reply, error) {
	t := s.tally()
	counts := make(map[driver.State]int)
	for {
		had := counts[driver.Released]
		if had >= s.need {
			return driver.Reply{State: driver.Released}, nil
		}
		if t.blocks(len(t.refused) - had) { // too few had the lease
			return s.leftovers(t, counts)
		}
		a, ok := r.next()
		if !ok {
			break
		}
		t.add(a)
		if a.err == nil {
			counts[a.value.State]++
		}
	}
	// It is released wherever that can be known. Whether a majority had it to
	// the end can not.
	err := s.undecided(r.caller, t.failed)
	if counts[driver.Released]+counts[driver.Left] == 0 && t.unknown() == 0 {
		err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
	}
	return driver.Reply{}, err
}

// leftovers is the answer where no majority had the lease.
func (s *Driver) leftovers(t *tally, counts map[driver.State]int) (driver.Reply, error) {
	switch {
	case counts[driver.Busy] > 0:
		return driver.Reply{State: driver.Busy}, nil
	case counts[driver.Left] > 0:
		return driver.Reply{State: driver.Left}, nil
	case len(t.refused) == 0 || t.refused[0].err == nil:
		return lastWord(t.refused), nil
	}
	return driver.Reply{}, s.nodes[t.refused[0].node].named(t.refused[0].err)
}

// end notes that the lease is given back for good, before the nodes are told, so
// that no node is healed from then on.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.over = false, true
	l.remember(0)
}

// endTold notes that the caller knows the end of the lease: it does not ask again.
func (l *lease) endTold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.over, l.told = false, true, true
}
