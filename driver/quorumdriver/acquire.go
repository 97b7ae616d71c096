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
	l.note(req)
	return s.acquire(ctx, l, req)
}

// acquire asks, and asks again a few times while votes are split.
func (s *Driver) acquire(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	if err := l.lockAcquire(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer l.unlockAcquire()
	began, examined := time.Now(), false
	var unsure set // over all rounds: a late request of one round may arrive during the next
	for attempt := 1; ; attempt++ {
		v := s.poll(ctx, l, req)
		if v.err == nil {
			if err := s.checkMembers(ctx); err != nil {
				v = verdict{err: err, unsure: s.allNodes()}
			} else if err := tooLate(v.asked, req.TTL); v.won && err != nil { // the marks may have taken their time
				v = verdict{err: err, unsure: s.allNodes()}
			}
		}
		unsure |= v.unsure
		if v.won {
			l.grant(req, v.reply, v.asked)
			return v.reply, nil
		}
		if v.forgetful && !examined && s.checkMarks(ctx, began) {
			examined, attempt = true, 0
			continue
		}
		if v.refused {
			// A lease that was held before has lost its majority: the next grant is a
			// new lease with its own token.
			l.markLost()
		}
		clean := s.undo(ctx, l, v.refused)
		if len(s.nodes)-unsure.size() >= s.need && clean && errors.Is(v.err, driver.ErrNoQuorum) {
			v.err = fmt.Errorf("%w: %w", v.err, driver.ErrUnavailable)
		}
		if !v.split {
			return v.reply, v.err
		}
		pause := spread(splitPause << attempt)
		if attempt == maxSplits || !sleep(ctx, pause) {
			v.reply.RetryAfter = 4 * pause
			return v.reply, nil
		}
	}
}

// verdict is the outcome of one round.
type verdict struct {
	reply driver.Reply
	err   error
	won   bool
	asked time.Time
	split bool // no contender has a majority
	// refused reports whether other leases hold so many nodes that no majority is left.
	refused bool
	// forgetful reports whether nodes that may have lost their data were decisive.
	forgetful bool
	unsure    set // nodes that did not answer, and may have done something
}

// poll asks all nodes once. The caller undoes a round that is lost.
func (s *Driver) poll(ctx context.Context, l *lease, req driver.Request) verdict {
	start, number := clock.Now(), l.nextRound()
	r := ask(ctx, s, l, s.allNodes(), timing.Life(req.TTL, timing.Drift), func(ctx context.Context, i int) (driver.Reply, error) {
		return s.acquireAt(ctx, l, i, number, s.request(s.nodes[i], req))
	})
	t := s.tally()
	for !t.decided() {
		a, ok := r.next()
		if !ok {
			break
		}
		t.add(a)
	}
	if len(t.granted) < s.need {
		s.awaitReason(ctx, r, t)
		r.finish(nil)
		return s.lostRound(ctx, l, t)
	}
	token, err := s.agreeOnToken(ctx, r, t, req)
	if err == nil {
		err = tooLate(start, req.TTL)
	}
	if err != nil {
		r.finish(nil)
		return verdict{err: err, unsure: t.unsure(s.allNodes())}
	}
	r.finish(func(a answer[driver.Reply]) { s.lateGrant(l, req, token, a) })
	if t.amnesia() > 0 {
		s.checkMarksSoon()
	}
	return verdict{won: true, asked: start, reply: t.grant(token)}
}

// tooLate returns an error if a lease that was asked for at start has ended, or nearly.
func tooLate(start time.Time, ttl time.Duration) error {
	now := clock.Now()
	if !timing.TooLate(now, start, ttl, timing.Drift) {
		return nil
	}
	return fmt.Errorf("%w: a majority granted, but after %v, too late for a lease of %v", driver.ErrNoQuorum, now.Sub(start), ttl)
}

// awaitReason takes further answers for a moment until it is known why the round is lost.
// It does not wait for slow nodes.
func (s *Driver) awaitReason(ctx context.Context, r *round[driver.Reply], t *tally) {
	if t.reasonKnown() {
		return
	}
	moment, cancel := context.WithTimeout(ctx, slowAfter)
	defer cancel()
	for !t.reasonKnown() && r.worthWaiting() {
		a, ok := r.nextBefore(moment.Done())
		if !ok {
			return
		}
		t.add(a)
	}
}

// lostRound returns why a round was lost.
func (s *Driver) lostRound(ctx context.Context, l *lease, t *tally) verdict {
	if ctx.Err() != nil {
		return verdict{err: s.undecided(ctx, t.failed), unsure: s.allNodes()}
	}
	v := verdict{split: t.split(), forgetful: t.forgetful(), unsure: t.unsure(s.allNodes())}
	v.reply, v.err = t.refusal(s)
	v.refused = v.err == nil && t.blocks(len(t.refused))
	if v.err == nil && !v.refused && l.holds() {
		v.reply, v.err, v.split = driver.Reply{}, s.noQuorum(t.failed), false // it may be held as before
	}
	return v
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

// visitOf returns the visit by which this process asked for a lease, empty if it did not.
func (s *Driver) visitOf(l *lease) string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.askedHere() {
		return ""
	}
	return s.visitFor(l.req.Visit)
}

// lateGrant handles an answer that came after the lease was granted with token. A node
// with a smaller token would make the next holder write back again; a node with a greater
// token would answer a repeated request with the wrong token.
func (s *Driver) lateGrant(l *lease, req driver.Request, token int64, a answer[driver.Reply]) {
	switch {
	case errors.Is(a.err, driver.ErrAmnesia):
		s.checkMarksSoon()
	case a.err == nil && a.value.State == driver.Granted && a.value.Token != token && l.isHeldAt(a.node):
		ctx, cancel := context.WithTimeoutCause(context.Background(), s.timeout, errNoAnswer)
		defer cancel()
		_, _ = s.raiseAt(ctx, a.node, driver.Ref{Key: l.key, ID: l.id, TTL: req.TTL, Token: token, Level: l.reportedToken() > 0})
	}
}

// isHeldAt reports whether the lease is held and no request about it is under way at a
// node.
func (l *lease) isHeldAt(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held && !l.nodes[i].queue.busy
}

// sleep reports whether it slept for d; false means that ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
