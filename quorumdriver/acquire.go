package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Votes that are split between contenders are given back and asked for again
// after a random time, so that one of them is alone. A caller that waits asks
// again later anyway; one that tries would be told that a lock is held that
// nobody holds.
const (
	splits     = 3
	splitPause = 4 * time.Millisecond
)

// pollEvery is how soon a waiter is told to ask again at the latest; half of it
// at the soonest.
const pollEvery = 400 * time.Millisecond

// spread varies d by up to half downwards, so that contenders do not ask in step.
func spread(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/2))
}

// Acquire implements [driver.Driver]. It asks all nodes at once and answers as
// soon as a majority has. Granted means that a majority granted, and agrees on
// the token. If a majority answered and did not grant, what some of them granted
// has been given back, and the answer is Busy, never Queued. The error matches
// [driver.ErrNoQuorum] if a majority did not answer.
func (s *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := s.Supports(req); err != nil {
		return driver.Reply{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	if err := s.contradicted(ctx); err != nil {
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

// acquire asks, and asks again while votes are split, a few times.
func (s *Driver) acquire(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	if err := l.take(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer l.give()
	began, examined := time.Now(), false
	for attempt := 1; ; attempt++ {
		v := s.poll(ctx, l, req)
		if v.err == nil {
			if err := s.agreed(ctx); err != nil {
				v = verdict{err: err}
			}
		}
		if v.won {
			l.grant(req, v.reply)
			return v.reply, nil
		}
		if v.forgetful && !examined && s.examine(ctx, began) {
			examined, attempt = true, 0
			continue
		}
		if v.err == nil {
			// It was held once, perhaps, and a majority does not have it any more:
			// if it is let in again that is another grant, with its own token.
			l.lose()
		}
		clean := s.undo(ctx, l, v.err == nil)
		if v.definite && clean && errors.Is(v.err, driver.ErrNoQuorum) {
			v.err = fmt.Errorf("%w: %w", v.err, driver.ErrUnavailable)
		}
		if !v.split {
			return v.reply, v.err
		}
		pause := spread(splitPause << attempt)
		if attempt == splits || !sleep(ctx, pause) {
			v.reply.RetryAfter = 4 * pause
			return v.reply, nil
		}
	}
}

// verdict is what came of one round.
type verdict struct {
	reply driver.Reply
	err   error
	won   bool
	split bool // nobody seems to have a majority
	// forgetful tells that nodes decided it that may have lost their data, and
	// definite that the nodes that did not answer have certainly done nothing.
	forgetful, definite bool
}

// poll asks all nodes once. A round that is lost is for the caller to undo.
func (s *Driver) poll(ctx context.Context, l *lease, req driver.Request) verdict {
	start, number := time.Now(), l.nextRound()
	r := ask(ctx, s, l, s.everyone(), timing.Life(req.TTL, timing.Drift), func(ctx context.Context, i int) (driver.Reply, error) {
		return s.acquireAt(ctx, l, i, number, s.request(i, req))
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
		s.clarify(ctx, r, t)
		r.finish(nil)
		return s.lost(ctx, t)
	}
	token, err := s.agree(ctx, r, t, req)
	if now := time.Now(); err == nil && timing.TooLate(now, start, req.TTL, timing.Drift) {
		err = fmt.Errorf("%w: a majority granted, but after %v, too late for a lease of %v", driver.ErrNoQuorum, now.Sub(start), req.TTL)
	}
	if err != nil {
		r.finish(nil)
		return verdict{err: err, definite: t.definite()}
	}
	r.finish(func(a answer[driver.Reply]) { s.straggle(l, req, token, a) })
	if t.amnesia() > 0 {
		s.examineSoon()
	}
	return verdict{won: true, reply: t.grant(token)}
}

// clarify takes further answers for a moment while it is not clear why a round is
// lost, but for those of nodes that are known to be slow.
func (s *Driver) clarify(ctx context.Context, r *round[driver.Reply], t *tally) {
	if t.clear() {
		return
	}
	moment, cancel := context.WithTimeout(ctx, hush)
	defer cancel()
	for !t.clear() && r.waits() {
		a, ok := r.nextBefore(moment.Done())
		if !ok {
			return
		}
		t.add(a)
	}
}

// lost says why a round was not won.
func (s *Driver) lost(ctx context.Context, t *tally) verdict {
	if ctx.Err() != nil {
		return verdict{err: s.undecided(ctx, t.failed)}
	}
	v := verdict{split: t.split(), forgetful: t.forgetful(), definite: t.definite()}
	v.reply, v.err = t.refusal(s)
	return v
}

// request is what node i is asked, by a visit of this process, so that undoing it
// takes nothing away from another process that asks with the same id.
func (s *Driver) request(i int, req driver.Request) driver.Request {
	req = s.nodes[i].shape(req)
	req.Visit = s.visitFor(req.Visit)
	req.HintAddress = s.address(i, req.HintAddress, req.TicketTTL > 0)
	if req.HintAddress == "" {
		req.TicketTTL = 0 // a ticket is good for a hint, and none would come
	}
	return req
}

// visitFor is what this process is called when it asks on behalf of a visit.
func (s *Driver) visitFor(caller string) string {
	if caller == "" {
		return s.visit
	}
	return caller + "/" + s.visit
}

// visitOf is by which visit a lease was asked for here, empty if it was not.
func (s *Driver) visitOf(l *lease) string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known() {
		return ""
	}
	return s.visitFor(l.req.Visit)
}

// straggle takes an answer that came after the lease was granted with token.
func (s *Driver) straggle(l *lease, req driver.Request, token int64, a answer[driver.Reply]) {
	switch {
	case errors.Is(a.err, driver.ErrAmnesia):
		s.examineSoon()
	case a.err == nil && a.value.State == driver.Granted && a.value.Token != token && l.lasts(a.node):
		// Behind, it would have the next holder write back again; ahead, it would tell
		// another token to who asks again.
		ctx, cancel := context.WithTimeoutCause(context.Background(), s.timeout, errNoAnswer)
		defer cancel()
		_, _ = s.raiseAt(ctx, a.node, driver.Ref{Key: l.key, ID: l.id, TTL: req.TTL, Token: token, Level: l.shown() > 0})
	}
}

// lasts reports whether the lease is held, and is not being released at a node.
func (l *lease) lasts(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held && !l.at[i].busy
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
