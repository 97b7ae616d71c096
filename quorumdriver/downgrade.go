package quorumdriver

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// downgrade makes a lease that is held a shared one. It is so when a majority
// has done it: readers then find one at which they can enter. A node that has
// done it keeps the lease as before, and one that has not keeps more than is
// needed, so that nothing of a round without a majority is undone.
func (s *Driver) downgrade(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	before := l.lower(req)
	r := ask(ctx, s, l, s.everyone(), timing.Life(req.TTL, timing.Drift), func(ctx context.Context, i int) (reply driver.Reply, err error) {
		err = s.nodes[i].call(ctx, func(ctx context.Context) error {
			reply, err = s.nodes[i].Acquire(ctx, s.request(i, req))
			return err
		})
		return reply, err
	})
	defer r.finish(nil)
	t := s.tally()
	for !t.decided() {
		a, ok := r.next()
		if !ok {
			break
		}
		t.add(a)
	}
	reply, err := s.lowered(ctx, l, t)
	switch {
	case err != nil && definite(err):
		l.heighten(before)
	case err == nil && reply.State != driver.Granted:
		l.lose()
	}
	return reply, err
}

// lowered is the answer of the nodes. The lease keeps its token.
func (s *Driver) lowered(ctx context.Context, l *lease, t *tally) (driver.Reply, error) {
	switch {
	case len(t.granted) >= t.need:
		return t.grant(s.tokenOf(l, t)), nil
	case t.answered() >= t.need:
		return t.refusal(s)
	}
	err := s.undecided(ctx, t.failed)
	if len(t.granted) == 0 && t.unknown() == 0 {
		err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
	}
	return driver.Reply{}, err
}

// tokenOf is the token of a lease that a majority still has: the one that was
// told, where it was granted here.
func (s *Driver) tokenOf(l *lease, t *tally) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !s.fencing:
		return 0
	case l.held && l.token > 0:
		return l.token
	}
	return t.greatest()
}

// lower notes, before the nodes are asked, that a node which has forgotten the
// lease is asked to let it in as a shared one from now on. It returns what was
// to be asked for before.
func (l *lease) lower(req driver.Request) (before driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.req
	if l.known() {
		l.req.Mode, l.req.Limit, l.req.Weight, l.req.Reenter = req.Mode, req.Limit, req.Weight, false
	}
	return before
}

// heighten takes lower back: no node has done it.
func (l *lease) heighten(before driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.req.Mode, l.req.Limit, l.req.Weight, l.req.Reenter = before.Mode, before.Limit, before.Weight, before.Reenter
}
