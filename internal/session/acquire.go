package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// unavailableTries is how often a store that certainly did nothing is asked.
const unavailableTries = 3

// maxRecalls is how many changes a session calls back for as long as that takes.
const maxRecalls = 100

// Answer is what the store said to a request.
type Answer struct {
	driver.Reply
	// Unanswered tells of tries that may still be on their way.
	Unanswered bool

	patient bool // whoever asks waits for the lock, and so for a store that is away

	began  time.Time     // when it was first to be asked
	sent   time.Time     // when the try that was answered was, or what counts as that
	window time.Duration // of a grant that was handed over, and is not confirmed
}

// Sent is when the request was sent that was answered, or when the store handed the
// lock over, at the earliest; see package timing.
func (a *Answer) Sent() time.Time { return a.sent }

// Grant is a lease that the store gave.
type Grant struct {
	Token int64
	// Origin is when the request was sent that was answered, or when the store
	// handed the lock over, at the earliest; see package timing.
	Origin time.Time
	// Window is the time for the confirmation of a lock that was handed over; 0
	// if the store counts the full TTL already.
	Window      time.Duration
	Uncontended bool // nobody else was there
	// Unanswered tells of requests of this id that may still be on their way.
	Unanswered bool
}

// handed is when the store handed the lock over; zero if it did not.
func (g *Grant) handed() time.Time {
	if g.Window == 0 {
		return time.Time{}
	}
	return g.Origin
}

// Grant is the lease that the store says it has given.
func (a *Answer) Grant() Grant {
	return Grant{Token: a.Token, Origin: a.sent, Window: a.window, Uncontended: a.Uncontended, Unanswered: a.Unanswered}
}

// Try asks once whether a lock is free, and repeats that until it is answered. What
// a request that was not answered may still do is undone in the background.
func (s *Session) Try(ctx context.Context, t *Terms, req *driver.Request) (Answer, error) {
	return s.try(ctx, t, req, Answer{})
}

// Insist is Try for somebody who waits for the lock without a place in the queue. A store
// that is away is waited for by the rule of those who have one.
func (s *Session) Insist(ctx context.Context, t *Terms, req *driver.Request) (Answer, error) {
	return s.try(ctx, t, req, Answer{patient: true})
}

func (s *Session) try(ctx context.Context, t *Terms, req *driver.Request, a Answer) (Answer, error) {
	err := s.ask(ctx, t, req, nil, &a)
	if a.Unanswered && a.State != driver.Granted {
		s.Undo(ctx, t, req, true)
	}
	return a, err
}

// Ask sends req until it is answered, and undoes nothing.
func (s *Session) Ask(ctx context.Context, t *Terms, req *driver.Request) (a Answer, err error) {
	err = s.ask(ctx, t, req, nil, &a)
	return a, err
}

// Change sends req, which asks for no lease but for a change that no release undoes,
// until it is answered. If a try before that was not, the store rejects its id from then
// on, so that it changes nothing when it arrives after a later change: if that cannot be
// had within the release timeout, the error matches ErrUnknown, and the session goes on
// to ask for it in the background, until it is answered or closed.
func (s *Session) Change(ctx context.Context, t *Terms, req *driver.Request) (a Answer, err error) {
	if err = s.ask(ctx, t, req, nil, &a); !a.Unanswered {
		return a, err
	}
	late := Abandoned{Ref: driver.Ref{Key: req.Key, ID: req.ID, RejectIDFor: timing.ForbidFor}}
	if err == nil {
		if err = s.undo(ctx, t, &late, s.Now().Add(t.ReleaseTimeout)); err == nil {
			return a, nil
		}
		err = s.because(ctx, unknown(fmt.Errorf("an earlier request may still be on its way: %w", err)))
	}
	s.recall(context.WithoutCancel(ctx), t, &late)
	return a, err
}

// recall is GiveBack for a change, which is not over by itself: a store that was away for
// hours may come back with it. So that a long outage leaves no work without bound, those
// beyond maxRecalls are given up after a minute.
func (s *Session) recall(ctx context.Context, t *Terms, late *Abandoned) {
	late.Life, late.Over = timing.ForbidFor, func() { s.recalls.Add(-1) }
	if s.recalls.Add(1) <= maxRecalls {
		late.Life = endless
	}
	s.GiveBack(ctx, t, late)
}

// ask sends req until it is answered by a, for w, which is nil without a queue. It is
// repeated with the same id, so that an answer that was lost is given again.
func (s *Session) ask(ctx context.Context, t *Terms, req *driver.Request, w *Waiter, a *Answer) (err error) {
	a.began = s.Now()
	a.sent = a.began
	var last error
	for attempt := 1; ; attempt++ {
		err = s.send(ctx, t, req, w, a, attempt)
		switch {
		case err == nil && a.State == driver.Gone && !a.Broken && last != nil && !t.Policy.GoneAnswers:
			// The id was given up: nobody can tell what became of it before.
			*a = Answer{Unanswered: true}
			return s.because(ctx, unknown(last))
		case err == nil:
			a.Unanswered = a.Unanswered || a.InFlight
			if w != nil && last != nil {
				w.missed(nil)
			}
			return nil
		case errors.Is(err, errNotAsked) && last != nil:
			err = last // says more
		}
		a.Reply = driver.Reply{}
		a.Unanswered = a.Unanswered || !timing.Definite(err)
		if w != nil && ctx.Err() == nil {
			w.missed(err)
		}
		if last == nil || !timing.IsTimeout(err) {
			last = err // that a try was cut short says less than what failed before
		}
		if timing.Permanent(err) {
			break
		}
		left := s.patience(a, t, s.Now())
		if a.patient && timing.Definite(err) { // a store that answers only renewals may refuse locks for ever
			left = t.outage(s.outage.acquires.since(s, a.began), s.Now())
		}
		if t.tired(left) || !a.patient && !a.Unanswered && attempt >= unavailableTries {
			err = s.away(a.began, last)
			break
		}
		if !s.sleep(ctx, min(timing.BackOff(attempt), left)) {
			err = s.away(a.began, last)
			break
		}
		a.sent = s.Now()
	}
	if a.Unanswered {
		err = unknown(err)
	}
	return s.because(ctx, err)
}

// send asks once, when it is the request's turn. The time of the try begins only
// then: what has waited here is not sent again while the store answers it.
func (s *Session) send(ctx context.Context, t *Terms, req *driver.Request, w *Waiter, a *Answer, attempt int) (err error) {
	p, ok := s.asking.pass()
	if !ok {
		if p, ok = s.asking.wait(ctx, s.Closing(), func() time.Duration { return s.patience(a, t, s.Now()) }); !ok {
			return errCrowded
		}
		if w != nil {
			s.listener.await(ctx)
		}
		a.sent = s.Now()
	}
	defer func() { s.asking.leave(p, err == nil) }()
	if w != nil {
		w.aim()
	}
	if ctx.Err() != nil {
		return errNotAsked
	}
	try, cancel := s.bound(t.Policy.call(ctx), timing.Try(attempt, s.patience(a, t, a.sent)))
	defer cancel()
	if attempt > 1 && !s.punctual.told { // the first try is short, and spares the allocations
		try, cancel = s.whileOpen(try)
		defer cancel()
	}
	if a.Reply, err = s.verbs.Acquire(try, *req); err != nil {
		s.miss(ctx, a.sent, err)
		return err
	}
	if a.State == driver.Granted && t.tooLate(s.Now(), a.sent, req.TTL) {
		return timing.ErrLate
	}
	s.hear(a.sent)
	s.outage.acquires.raise(s.instant(a.sent))
	return nil
}

// patience returns how much longer a request asks a store that does not answer it. The
// time of a try counts from its beginning, that of a wait from the last answer to the
// session: a store that serves others will serve this request.
func (s *Session) patience(a *Answer, t *Terms, now time.Time) time.Duration {
	if !a.patient {
		return t.tryOutage(a.began, now)
	}
	return t.outage(s.outage.heard.since(s, a.began), now)
}

// away is err, with how long the store has been asked since began.
func (s *Session) away(began time.Time, err error) error {
	if d := s.Now().Sub(began).Round(time.Millisecond); d > 0 {
		return fmt.Errorf("asked for %v: %w", d, err)
	}
	return err
}

// renew is the driver's, and hears it.
func (s *Session) renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	sent := s.Now()
	s.drv.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
		if err == nil {
			s.hear(sent)
		} else {
			s.miss(ctx, sent, err)
		}
		each(i, reply, err)
	})
}

// over is why ctx or the session ended; nil if they have not.
func (s *Session) over(ctx context.Context) error {
	cause := CauseOf(ctx)
	if cause == nil && s.IsClosing() {
		cause = ErrClosed
	}
	return cause
}

// because puts before err why ctx or the session ended, if they have.
func (s *Session) because(ctx context.Context, err error) error {
	cause := s.over(ctx)
	if cause == nil {
		return err
	}
	return Because(cause, err)
}
