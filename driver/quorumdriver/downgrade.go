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
// downgraded still keeps the lease, and one that has not keeps more than is needed. A node
// that has forgotten the lease is asked for a shared one from the beginning of the round.
func (s *Driver) downgrade(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	shared := req
	shared.Reenter = false
	before := l.setMode(shared)
	asked := clock.Now()
	r := query(ctx, s, s.allNodes(), timing.Life(req.TTL, timing.Drift), func(ctx context.Context, n *node) (driver.Reply, error) {
		return n.Acquire(ctx, s.request(n, req))
	}, l)
	defer r.finish(nil)
	t := s.count(r)
	if len(t.granted) >= s.need {
		return t.grant(l.downgraded(t, asked, req.TTL)), nil
	}
	var reply driver.Reply
	var err error
	if t.blocks(len(t.refused)) && t.answered() >= t.need {
		reply, err = t.refusal(s)
	} else if err = s.undecided(ctx, t.failed); len(t.granted) == 0 && t.unsure(s.allNodes()) == 0 {
		err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
	}
	switch {
	case err == nil:
		l.markLost()
	case definite(err):
		l.setMode(before)
	}
	return reply, err
}

// setMode replaces the mode of a lease for which this process has asked, and returns the
// request before.
func (l *lease) setMode(req driver.Request) (before driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.req
	if l.askedHere() && req.Key != "" {
		l.req.Mode, l.req.Limit, l.req.Weight, l.req.Reenter = req.Mode, req.Limit, req.Weight, req.Reenter
	}
	return before
}

// downgraded prolongs a lease that a majority has downgraded, and returns its token: that of
// the grant to this process, or else the greatest of the majority.
func (l *lease) downgraded(t *tally, asked time.Time, ttl time.Duration) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	token := t.greatestToken()
	if l.isHeld() {
		l.lastFor(asked, ttl)
		l.keepFor(ttl)
		if l.token > 0 {
			token = l.token
		}
	}
	if !l.s.fencing {
		return 0
	}
	return token
}
