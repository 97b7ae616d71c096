package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Split votes are released and the request repeated after a random time, so that one
// contender is alone. A try is not repeated by its caller, so without this it could
// report a free lock as held.
const (
	maxSplits  = 3
	splitPause = 4 * time.Millisecond
)

// pollInterval is the longest time after which a waiter asks again; the shortest is half
// of it.
const pollInterval = 400 * time.Millisecond

// spread shortens d by up to half at random, so that contenders do not ask in step.
func spread(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/2))
}

// Acquire implements [driver.Driver]. It asks all nodes at once, and answers as soon as
// the outcome is known. Granted means that a majority granted, and agrees on the token.
// If a majority answered and did not grant, the driver has released what some nodes
// granted, and the answer is Busy, never Queued. The error matches [driver.ErrNoQuorum]
// if a majority did not answer, and [driver.ErrUnavailable] too if the request left no
// trace. A lease that is held and asked for again is not released: the error matches
// [driver.ErrNoQuorum] also if a majority answered, unless so many refused that the lease
// is lost.
func (s *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := s.Supports(req); err != nil {
		return driver.Reply{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	if err := s.knownContradiction(ctx); err != nil {
		return driver.Reply{}, err
	}
	l := s.use(leaseKey{req.Key, req.ID})
	defer s.leave(l)
	if req.Downgrade {
		return s.downgrade(ctx, l, req)
	}
	l.storeRequest(req)
	return s.acquire(ctx, l, req)
}

// acquire asks all nodes for a lease in a round, and in further rounds while votes are split.
func (s *Driver) acquire(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	if err := l.takeTurn(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer func() { <-l.turn }()
	began, examined := time.Now(), false
	var unsure set // nodes that may have carried out a request of any round, now or later
	for attempt := 1; ; attempt++ {
		// Ask all nodes at once, until a majority has granted or no longer can.
		asked, number := clock.Now(), l.nextRound()
		r := ask(ctx, s, s.allNodes(), timing.Life(req.TTL, timing.Drift), func(ctx context.Context, i int) (driver.Reply, error) {
			return l.nodes[i].acquire(ctx, number, s.request(s.nodes[i], req))
		}, l)
		t := s.count(r)

		// A majority that granted agrees on a token. Otherwise find out why none did.
		var token int64
		var reply driver.Reply
		var err error
		won := len(t.granted) >= s.need
		if won {
			token, err = s.agreeOnToken(ctx, l, r, t, req)
		} else {
			reply, err = s.refusal(ctx, r, t)
		}
		if err == nil {
			err = s.checkMembers(ctx)
		}
		if now := clock.Now(); err == nil && won && timing.TooLate(now, asked, req.TTL, timing.Drift) {
			err = fmt.Errorf("%w: a majority granted, but after %v, too late for a lease of %v", driver.ErrNoQuorum, now.Sub(asked), req.TTL)
		}
		if err == nil && won {
			reply = t.grant(token)
			l.grant(req, reply, asked)
			r.finish(func(a answer[driver.Reply]) { s.lateAnswer(l, token, a) })
			if t.amnesia() > 0 {
				s.checkMarksSoon()
			}
			return reply, nil
		}
		r.finish(nil)

		// Nodes may have lost their data. Ask again if they have been given marks.
		unsure |= t.unsure(s.allNodes())
		if !won && t.amnesic() && !examined && ctx.Err() == nil && s.checkMarks(ctx, began) {
			examined, attempt = true, 0
			continue
		}

		// A majority that refuses ends a lease that was held before: the next grant is a new
		// lease with its own token. Otherwise it may be held as before.
		refused := err == nil && t.blocks(len(t.refused))
		if refused {
			l.markLost()
		} else if err == nil && l.holds() {
			err = s.noQuorum(t.failed)
		}

		// Release what single nodes have granted.
		clean := l.undo(ctx, refused)
		if errors.Is(err, driver.ErrNoQuorum) && clean && len(s.nodes)-unsure.size() >= s.need {
			err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
		}
		if err != nil {
			return driver.Reply{}, err
		}

		// Ask again if other contenders have split the votes.
		if !t.split() {
			return reply, nil
		}
		if pause := spread(splitPause << attempt); attempt == maxSplits || !timing.Sleep(ctx, pause) {
			reply.RetryAfter = 4 * pause
			return reply, nil
		}
	}
}

// count counts answers until further ones are irrelevant.
func (s *Driver) count(r *round[driver.Reply]) *tally {
	t := s.newTally()
	for !t.decided() {
		a, ok := r.next()
		if !ok {
			break
		}
		t.add(a)
	}
	return &t
}

// refusal returns why a round is lost. It takes further answers for a moment until the
// reason is known, but does not wait for slow nodes.
func (s *Driver) refusal(ctx context.Context, r *round[driver.Reply], t *tally) (driver.Reply, error) {
	for !t.reasonKnown() {
		a, ok := r.nextSoon()
		if !ok {
			break
		}
		t.add(a)
	}
	if ctx.Err() != nil {
		return driver.Reply{}, s.undecided(ctx, t.failed)
	}
	return t.refusal(s)
}

// lateAnswer handles an answer that came after the lease was granted with token. A node
// with a smaller token would make the next holder write back again; a node with a greater
// token would answer a repeated request with the wrong token.
func (s *Driver) lateAnswer(l *lease, token int64, a answer[driver.Reply]) {
	switch {
	case errors.Is(a.err, driver.ErrAmnesia):
		s.checkMarksSoon()
	case a.err == nil && a.value.State == driver.Granted && a.value.Token != token:
		l.nodes[a.node].raiseIfHeld(token)
	}
}

// request returns the request for a node, with the visit of this process, so that undoing
// it ends no lease that another process was granted with the same id.
func (s *Driver) request(n *node, req driver.Request) driver.Request {
	req = n.shape(req)
	req.Visit = s.visitFor(req.Visit)
	req.HintAddress = s.address(n.index, req.HintAddress, req.TicketTTL > 0)
	if req.HintAddress == "" {
		req.TicketTTL = 0 // a ticket is useful only with hints, and this node sends none
	}
	return req
}

// visitFor returns the visit of this process on behalf of a caller's visit.
func (s *Driver) visitFor(caller string) string {
	if caller == "" {
		return s.visit
	}
	return caller + "/" + s.visit
}
