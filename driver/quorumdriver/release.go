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
	pending := l.release(ref)
	r := ask(ctx, s, s.allNodes(), s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		p := pending[i]
		if p == nil {
			return l.nodes[i].releaseNow(ctx, ref, false)
		}
		select {
		case <-p.done:
			return p.reply, p.err
		case <-ctx.Done():
			return driver.Reply{}, context.Cause(ctx)
		}
	}, l)
	defer r.finish(nil)
	reply, err := s.countReleases(r)
	if err == nil && reply.State != driver.Busy {
		l.mu.Lock()
		l.phase = reported // the caller will not ask for it again
		l.mu.Unlock()
	}
	return reply, err
}

// release queues a release at every node, so that no acquire is sent before it. An entry is
// nil if the caller sends the release at once. The lease ends before the nodes are asked, so
// that no node is repaired from then on; with a visit, it may be another one's.
func (l *lease) release(ref driver.Ref) (pending []*pendingRelease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ref.Visit == "" {
		l.phase = max(l.phase, ended)
		l.keepFor(0)
	}
	pending = make([]*pendingRelease, len(l.nodes))
	for i := range l.nodes {
		pending[i] = l.nodes[i].wantRelease(ref)
	}
	return pending
}

// undo releases the grants of a lost round, and reports whether that is complete. It waits
// for nodes that granted, at most until ctx ends; nodes that may have granted are
// released in the background. wasRefused reports whether a majority refused the round.
func (l *lease) undo(ctx context.Context, wasRefused bool) (complete bool) {
	l.mu.Lock()
	l.round++
	l.refused = wasRefused
	nodes, sure, complete := l.wantUndos()
	l.mu.Unlock()
	if nodes == 0 {
		return complete
	}
	r := ask(context.WithoutCancel(ctx), l.s, nodes, l.s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		return l.nodes[i].releaseNow(ctx, driver.Ref{Key: l.key, ID: l.id}, true)
	}, l)
	defer r.finish(nil)
	for sure != 0 {
		a, ok := r.nextBefore(ctx.Done())
		if !ok || sure.has(a.node) && (a.err != nil || a.value.State == driver.Busy) {
			return false // Busy: it belongs to another visit too
		}
		sure = sure.without(a.node)
	}
	return complete
}

// wantUndos queues an undo at all nodes that need one, unless the lease is held: it is from
// an earlier request, which the lost round may have prolonged. It returns the nodes at which
// the caller sends the undo at once, and those of them that have granted the lease. complete
// reports whether no grant is left to another request. The caller holds mu.
func (l *lease) wantUndos() (nodes, sure set, complete bool) {
	if l.phase == held {
		return 0, 0, false
	}
	complete = true
	for i := range l.nodes {
		n := &l.nodes[i]
		switch {
		case !n.busy && !n.needsUndo():
		case !n.wantUndo():
			complete = complete && n.state != granted // a release of another visit is under way
		default:
			nodes = nodes.with(i)
			if n.state == granted {
				sure = sure.with(i)
			}
		}
	}
	return nodes, sure, complete
}

// countReleases counts the answers to a release, or to a break.
func (s *Driver) countReleases(r *round[driver.Reply]) (driver.Reply, error) {
	t, counts := s.newTally(), make(map[driver.State]int)
	tooFewHadIt := func() bool { return t.blocks(len(t.refused) - counts[driver.Released]) }
	for counts[driver.Released] < s.need && !tooFewHadIt() {
		a, ok := r.next()
		if !ok {
			break
		}
		if t.add(a); a.err == nil {
			counts[a.value.State]++
		}
	}
	switch {
	case counts[driver.Released] >= s.need:
		return driver.Reply{State: driver.Released}, nil
	case !tooFewHadIt():
		// All nodes that answered have released it, but it is unknown whether a majority
		// had it to the end.
		err := s.undecided(r.caller, t.failed)
		if counts[driver.Released]+counts[driver.Left] == 0 && t.unsure(s.allNodes()) == 0 {
			err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
		}
		return driver.Reply{}, err
	case counts[driver.Busy] > 0:
		return driver.Reply{State: driver.Busy}, nil
	case counts[driver.Left] > 0:
		return driver.Reply{State: driver.Left}, nil
	case t.refused[0].err == nil:
		return goneReplyOf(t.refused), nil
	}
	return driver.Reply{}, s.nodes[t.refused[0].node].named(t.refused[0].err)
}
