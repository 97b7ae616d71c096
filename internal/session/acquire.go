package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// unavailableTries bounds the tries of a request that the store certainly did not execute.
const unavailableTries = 3

// maxRecalls bounds the changes that a session takes back without a time limit.
const maxRecalls = 100

// Answer is the store's reply to a request, and how it was obtained.
type Answer struct {
	driver.Reply
	// Unanswered reports whether earlier tries may still reach the store.
	Unanswered bool

	waits bool // the caller waits for the lock, and therefore for an unavailable store

	began  time.Time     // when the first try was due
	sent   time.Time     // when the answered try was sent, or the bound that replaces it
	window time.Duration // confirmation window of an unconfirmed hand-over; else 0
}

// Sent returns the time from which the answer counts: when the answered request was
// sent, or the earliest time of the hand-over. See package timing.
func (a *Answer) Sent() time.Time { return a.sent }

// Grant describes a lease that the store granted.
type Grant struct {
	Token  int64
	Places driver.Places
	// Origin is when the answered request was sent, or the earliest time of the
	// hand-over; see package timing.
	Origin time.Time
	// Window is the confirmation window of a hand-over; 0 if the store already
	// counts the full TTL.
	Window      time.Duration
	Uncontended bool // no other holder or waiter
	// Unanswered reports whether requests with this id may still reach the store.
	Unanswered bool
}

// handed returns when the store handed the lock over, or the zero time without a hand-over.
func (g *Grant) handed() time.Time {
	if g.Window == 0 {
		return time.Time{}
	}
	return g.Origin
}

// Grant returns the lease that the answer granted.
func (a *Answer) Grant() Grant {
	return Grant{Token: a.Token, Places: a.Places, Origin: a.sent, Window: a.window, Uncontended: a.Uncontended, Unanswered: a.Unanswered}
}

// Try asks for a lock without waiting for it, and repeats the request until the store
// answers. The effects of unanswered requests are undone in the background.
func (s *Session) Try(ctx context.Context, t *Terms, req *driver.Request) (Answer, error) {
	return s.try(ctx, t, req, Answer{})
}

// Insist is Try for a caller that waits for the lock without a place in the queue. It
// waits for an unavailable store as long as a queued waiter does.
func (s *Session) Insist(ctx context.Context, t *Terms, req *driver.Request) (Answer, error) {
	return s.try(ctx, t, req, Answer{waits: true})
}

func (s *Session) try(ctx context.Context, t *Terms, req *driver.Request, a Answer) (Answer, error) {
	err := s.ask(ctx, t, req, nil, &a)
	if a.Unanswered && a.State != driver.Granted {
		s.Undo(ctx, t, req, true)
	}
	return a, err
}

// Ask sends req until the store answers. It does not undo the request.
func (s *Session) Ask(ctx context.Context, t *Terms, req *driver.Request) (a Answer, err error) {
	err = s.ask(ctx, t, req, nil, &a)
	return a, err
}

// Change sends req, a change which no release undoes, until the store answers. If an
// earlier try was not answered, Change makes the store reject its id, so that a late
// arrival cannot override a later change. If that is not confirmed within the release
// timeout, the error matches ErrUnknown, and the session continues in the background
// until the store answers or the session is closed.
func (s *Session) Change(ctx context.Context, t *Terms, req *driver.Request) (a Answer, err error) {
	if err = s.ask(ctx, t, req, nil, &a); !a.Unanswered {
		return a, err
	}
	late := Abandoned{Ref: driver.Ref{Key: req.Key, ID: req.ID, RejectIDFor: timing.ForbidFor}}
	if err == nil {
		if err = s.undo(ctx, t, &late, s.Now().Add(t.ReleaseTimeout)); err == nil {
			return a, nil
		}
		err = s.withCause(ctx, earlierUnknown(fmt.Errorf("an earlier request may still be on its way: %w", err)))
	}
	s.recall(context.WithoutCancel(ctx), t, &late)
	return a, err
}

// recall is GiveBack for a change. A change does not expire: a store that was away for
// hours may still execute it, so the session keeps trying. To bound the work of a long
// outage, changes beyond maxRecalls are given up after a minute.
func (s *Session) recall(ctx context.Context, t *Terms, late *Abandoned) {
	late.Life, late.Over = timing.ForbidFor, func() { s.recalls.Add(-1) }
	if s.recalls.Add(1) <= maxRecalls {
		late.Life = endless
	}
	s.GiveBack(ctx, t, late)
}

// ask sends req until the store answers, and stores the answer in a. w is nil without a
// queue. All tries use the same id, so the store repeats an answer that was lost.
func (s *Session) ask(ctx context.Context, t *Terms, req *driver.Request, w *Waiter, a *Answer) (err error) {
	a.began = s.Now()
	a.sent = a.began
	var last error
	for attempt := 1; ; attempt++ {
		err = s.send(ctx, t, req, w, a, attempt)
		switch {
		case err == nil && a.State == driver.Gone && !a.Broken && last != nil && !t.Policy.GoneAnswers:
			// The id was rejected, so the outcome of the earlier tries is unknown.
			*a = Answer{Unanswered: true}
			return s.withCause(ctx, earlierUnknown(last))
		case err == nil:
			a.Unanswered = a.Unanswered || a.InFlight
			if w != nil && last != nil {
				w.missed(nil)
			}
			return nil
		case errors.Is(err, errNotAsked) && last != nil:
			err = last // more informative
		}
		a.Reply = driver.Reply{}
		a.Unanswered = a.Unanswered || !timing.Definite(err)
		if w != nil && ctx.Err() == nil {
			w.missed(err)
		}
		if last == nil || !timing.IsTimeout(err) {
			last = err // the earlier failure is more informative than a timeout
		}
		if timing.Permanent(err) {
			break
		}
		left := s.timeLeft(a, t, s.Now())
		if a.waits && timing.Definite(err) { // a store that answers only renewals may refuse locks for ever
			left = t.outage(s.outage.acquires.since(s, a.began), s.Now())
		}
		if t.givesUp(left) || !a.waits && !a.Unanswered && attempt >= unavailableTries {
			err = s.withElapsed(a.began, last)
			break
		}
		if !s.sleep(ctx, min(timing.BackOff(attempt), left)) {
			err = s.withElapsed(a.began, last)
			break
		}
		a.sent = s.Now()
	}
	if a.Unanswered {
		err = earlierUnknown(err)
	}
	return s.withCause(ctx, err)
}

// send sends the request once, when its turn has come. The time limit of the try starts
// only then: otherwise a request could time out here and be repeated while it queues.
func (s *Session) send(ctx context.Context, t *Terms, req *driver.Request, w *Waiter, a *Answer, attempt int) (err error) {
	span, ok := s.asking.tryStart()
	if !ok {
		if span, ok = s.asking.wait(ctx, s.Closing(), func() time.Duration { return s.timeLeft(a, t, s.Now()) }); !ok {
			return errCrowded
		}
		if w != nil {
			s.listener.await(ctx)
		}
		a.sent = s.Now()
	}
	defer func() { s.asking.end(span, err == nil) }()
	if w != nil {
		w.aim()
	}
	if ctx.Err() != nil {
		return errNotAsked
	}
	try, cancel := s.bound(t.Policy.call(ctx), timing.Try(attempt, s.timeLeft(a, t, a.sent)))
	defer cancel()
	if attempt > 1 && !s.punctual.observesDeadline { // the first try is short, so it does without these allocations
		try, cancel = s.whileOpen(try)
		defer cancel()
	}
	if a.Reply, err = s.verbs.Acquire(try, *req); err != nil {
		s.unanswered(ctx, a.sent, err)
		return err
	}
	if a.State == driver.Granted && t.tooLate(s.Now(), a.sent, req.TTL) {
		return timing.ErrLate
	}
	s.answered(a.sent)
	s.outage.acquires.raise(s.instant(a.sent))
	return nil
}

// timeLeft returns how much longer to repeat an unanswered request. A try is limited
// from its beginning. A wait is limited from the session's last answer, because a store
// that serves other requests will serve this one.
func (s *Session) timeLeft(a *Answer, t *Terms, now time.Time) time.Duration {
	if !a.waits {
		return t.tryOutage(a.began, now)
	}
	return t.outage(s.outage.heard.since(s, a.began), now)
}

// withElapsed returns err with the time that has passed since began.
func (s *Session) withElapsed(began time.Time, err error) error {
	if d := s.Now().Sub(began).Round(time.Millisecond); d > 0 {
		return fmt.Errorf("asked for %v: %w", d, err)
	}
	return err
}

// renew calls the driver's Renew and records whether the store answers.
func (s *Session) renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	sent := s.Now()
	s.drv.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
		if err == nil {
			s.answered(sent)
		} else {
			s.unanswered(ctx, sent, err)
		}
		each(i, reply, err)
	})
}

// endCause returns why ctx or the session ended, or nil.
func (s *Session) endCause(ctx context.Context) error {
	cause := CauseOf(ctx)
	if cause == nil && s.IsClosing() {
		cause = ErrClosed
	}
	return cause
}

// withCause puts the reason why ctx or the session ended, if any, before err.
func (s *Session) withCause(ctx context.Context, err error) error {
	cause := s.endCause(ctx)
	if cause == nil {
		return err
	}
	return Because(cause, err)
}
