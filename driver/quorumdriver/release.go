package quorumdriver

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/driver"
)

// Release implements [driver.Driver]. It asks all nodes and answers as soon as a majority
// has answered. The remaining nodes are released in the background, also nodes that have
// not answered the acquire yet, each for the timeout at most. The answer is Released if a
// majority had the lease, Left if it was only waited for, and Gone or Busy otherwise. The
// error matches [driver.ErrNoQuorum] if a majority did not answer.
func (s *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	l := s.use(leaseKey{ref.Key, ref.ID})
	defer s.leave(l)
	if ref.Visit == "" {
		l.end() // with a visit, the lease may be another one's
	}
	pending := s.queueReleases(l, ref)
	r := ask(ctx, s, l, s.allNodes(), s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		if p := pending[i]; p != nil {
			return p.wait(ctx)
		}
		return s.releaseNow(ctx, l, i, ref, false)
	})
	defer r.finish(nil)
	reply, err := s.countReleases(r)
	if err == nil && reply.State != driver.Busy {
		l.reportEnd()
	}
	return reply, err
}

// countReleases counts the answers to a release, or to a break.
func (s *Driver) countReleases(r *round[driver.Reply]) (driver.Reply, error) {
	t := s.tally()
	counts := make(map[driver.State]int)
	for {
		had := counts[driver.Released]
		if had >= s.need {
			return driver.Reply{State: driver.Released}, nil
		}
		if t.blocks(len(t.refused) - had) { // too few had the lease
			return s.noMajorityReleased(t, counts)
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
	// All nodes that answered have released it, but it is unknown whether a majority
	// had it to the end.
	err := s.undecided(r.caller, t.failed)
	if counts[driver.Released]+counts[driver.Left] == 0 && t.unknown() == 0 {
		err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
	}
	return driver.Reply{}, err
}

// noMajorityReleased returns the answer if no majority had the lease.
func (s *Driver) noMajorityReleased(t *tally, counts map[driver.State]int) (driver.Reply, error) {
	switch {
	case counts[driver.Busy] > 0:
		return driver.Reply{State: driver.Busy}, nil
	case counts[driver.Left] > 0:
		return driver.Reply{State: driver.Left}, nil
	case len(t.refused) == 0 || t.refused[0].err == nil:
		return goneReplyOf(t.refused), nil
	}
	return driver.Reply{}, s.nodes[t.refused[0].node].named(t.refused[0].err)
}

// end notes that the lease is released, before the nodes are asked, so that no node is
// repaired from then on.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.ended = false, true
	l.keepFor(0)
}

// reportEnd records that the caller has received the end of the lease, and will not ask
// for it again.
func (l *lease) reportEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.ended, l.endReported = false, true, true
}
