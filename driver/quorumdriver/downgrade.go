package quorumdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// downgrade makes a held lease a shared one. A majority suffices: readers then find a
// node at which they can enter. A round without a majority is not undone: a node that has
// downgraded still keeps the lease, and one that has not keeps more than is needed.
func (s *Driver) downgrade(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	before := l.noteDowngrade(req)
	asked := clock.Now()
	r := query(ctx, s, l, s.allNodes(), timing.Life(req.TTL, timing.Drift), func(ctx context.Context, n *node) (driver.Reply, error) {
		return n.Acquire(ctx, s.request(n, req))
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
	reply, err := s.downgraded(ctx, l, t)
	switch {
	case err == nil && reply.State == driver.Granted:
		l.prolong(asked, req.TTL)
	case err != nil && definite(err):
		l.undoDowngrade(before)
	case err == nil:
		l.markLost()
	}
	return reply, err
}

// prolong notes that a majority has given the lease its time to live again. That was asked for
// at a time.
func (l *lease) prolong(asked time.Time, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lapse(); l.held {
		l.lastFor(asked, ttl)
		l.keepFor(ttl)
	}
}

// downgraded returns the reply to a downgrade. The lease keeps its token.
func (s *Driver) downgraded(ctx context.Context, l *lease, t *tally) (driver.Reply, error) {
	switch {
	case len(t.granted) >= t.need:
		return t.grant(s.tokenOf(l, t)), nil
	case t.blocks(len(t.refused)) && t.answered() >= t.need:
		return t.refusal(s)
	}
	err := s.undecided(ctx, t.failed)
	if len(t.granted) == 0 && t.unknown() == 0 {
		err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
	}
	return driver.Reply{}, err
}

// tokenOf returns the token of a lease that a majority still has: the token of the grant
// to this process, or else the greatest.
func (s *Driver) tokenOf(l *lease, t *tally) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapse()
	switch {
	case !s.fencing:
		return 0
	case l.held && l.token > 0:
		return l.token
	}
	return t.greatestToken()
}

// noteDowngrade notes, before the nodes are asked, that a node which has forgotten the
// lease is asked for a shared one from now on. It returns the request before that.
func (l *lease) noteDowngrade(req driver.Request) (before driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.req
	if l.askedHere() {
		l.req.Mode, l.req.Limit, l.req.Weight, l.req.Reenter = req.Mode, req.Limit, req.Weight, false
	}
	return before
}

// undoDowngrade restores the request: no node has downgraded.
func (l *lease) undoDowngrade(before driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.req.Mode, l.req.Limit, l.req.Weight, l.req.Reenter = before.Mode, before.Limit, before.Weight, before.Reenter
}
