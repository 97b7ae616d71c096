package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// drift is by which part the clocks of nodes may run differently.
const drift = 0.01

// life is how long a lease lasts that is asked for now.
func life(ttl time.Duration) time.Duration {
	return ttl - time.Duration(float64(ttl)*drift) - 2*time.Millisecond
}

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
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := s.Supports(req); err != nil {
		return driver.Reply{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	l := s.use(leaseKey{req.Key, req.ID})
	defer s.leave(l)
	l.note(req)
	return s.acquire(ctx, l, req)
}

// acquire asks, and asks again while votes are split, a few times.
func (s *Store) acquire(ctx context.Context, l *lease, req driver.Request) (driver.Reply, error) {
	began, examined := time.Now(), false
	for attempt := 1; ; attempt++ {
		v := s.poll(ctx, l, req)
		if v.won {
			l.grant(req, v)
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
		clean := s.undo(ctx, l)
		if v.definite && clean && errors.Is(v.err, driver.ErrNoQuorum) {
			v.err = fmt.Errorf("%w: %w", v.err, driver.ErrUnavailable)
		}
		if !v.split {
			return v.reply, v.err
		}
		pause := spread(splitPause << attempt)
		if attempt == splits || !sleep(ctx, pause) {
			v.reply.Next = 4 * pause
			return v.reply, nil
		}
	}
}

// verdict is what came of one round.
type verdict struct {
	reply driver.Reply
	err   error
	won   bool
	by    []int // the nodes that decided that it is won
	split bool  // nobody seems to have a majority
	// forgetful tells that nodes decided it that may have lost their data, and
	// definite that the nodes that did not answer have certainly done nothing.
	forgetful, definite bool
}

// poll asks all nodes once. A round that is lost is for the caller to undo.
func (s *Store) poll(ctx context.Context, l *lease, req driver.Request) verdict {
	start, number := time.Now(), l.nextRound()
	r := ask(ctx, s, l, s.everyone(), life(req.TTL), func(ctx context.Context, i int) (driver.Reply, error) {
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
	if took := time.Since(start); err == nil && took >= life(req.TTL) {
		err = fmt.Errorf("%w: a majority granted, but after %v, too late for a lease of %v", driver.ErrNoQuorum, took, req.TTL)
	}
	if err != nil {
		r.finish(nil)
		return verdict{err: err, definite: t.definite()}
	}
	r.finish(func(a answer[driver.Reply]) { s.straggle(l, req, token, a) })
	if t.amnesia() > 0 {
		s.examineSoon()
	}
	return verdict{won: true, by: t.by(), reply: t.grant(token)}
}

// clarify takes further answers for a moment while it is not clear why a round is
// lost, but for those of nodes that are known to be slow.
func (s *Store) clarify(ctx context.Context, r *round[driver.Reply], t *tally) {
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
func (s *Store) lost(ctx context.Context, t *tally) verdict {
	if ctx.Err() != nil {
		return verdict{err: s.undecided(ctx, t.failed)}
	}
	v := verdict{split: t.split(), forgetful: t.forgetful(), definite: t.definite()}
	v.reply, v.err = t.refusal(s)
	return v
}

// request is what node i is asked.
func (s *Store) request(i int, req driver.Request) driver.Request {
	req = s.nodes[i].shape(req)
	req.Notify = s.address(i, req.Notify, req.Wait > 0)
	if req.Notify == "" {
		req.Wait = 0 // a ticket is good for a hint, and none would come
	}
	return req
}

// straggle takes an answer that came after the lease was granted with token.
func (s *Store) straggle(l *lease, req driver.Request, token int64, a answer[driver.Reply]) {
	switch {
	case errors.Is(a.err, driver.ErrAmnesia):
		s.examineSoon()
	case a.err == nil && a.value.State == driver.Granted && a.value.Token < token && l.lasts(a.node):
		// Behind, it would have the next holder write back again.
		ctx, cancel := context.WithTimeoutCause(context.Background(), s.timeout, errNoAnswer)
		defer cancel()
		_, _ = s.raiseAt(ctx, a.node, driver.Ref{Key: l.key, ID: l.id, TTL: req.TTL, Token: token})
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
