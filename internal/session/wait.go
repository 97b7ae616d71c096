package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Wait blocks until the ticket in a is granted, or, with GoneAnswers, is gone. It asks
// again for tickets that the store dropped. observe, if not nil, is called in this
// goroutine with each answer. If the wait ends without a lease, the error is an
// [*Unserved]. On return a holds the grant or the last answer to an Acquire.
//
// Thousands of goroutines may wait, so the state is in the waiter and in a, to keep their
// stacks small.
func (w *Waiter) Wait(ctx context.Context, a *Answer, observe func(Progress)) error {
	err := w.wait(ctx, a, observe)
	a.Unanswered = w.unanswered
	return unserved(err)
}

// unserved marks err if the outcome is unknown. Not inlined: it would grow every waiter's
// stack.
//
//go:noinline
func unserved(err error) error {
	if over := (*Unserved)(nil); errors.Is(err, driver.ErrUnavailable) && !errors.As(err, &over) {
		return earlierUnknown(err) // the lock may be handed over later
	}
	return err
}

func (w *Waiter) wait(ctx context.Context, a *Answer, observe func(Progress)) error {
	w.waited = true
	w.ctx = ctx
	w.woken = make(chan struct{}, 1) // keep must be able to wake w
	w.s.Listen()
	w.place = w.s.lines.join(w.req.Key, w)
	if observe != nil {
		w.news = make(chan struct{}, 1)
	}
	w.keep(a)
	for {
		if err := w.s.endCause(ctx); err != nil {
			return w.giveUp(err)
		}
		select {
		case <-w.news:
			w.tell(observe)
			continue
		case <-ctx.Done():
			continue
		case <-w.s.Closing():
			continue
		case <-w.woken:
		}
		if over, err := w.outcome(a); over {
			return err
		}
		err := w.askAgain(ctx, a)
		switch {
		case ctx.Err() != nil && (err != nil || w.t.Policy.CallContext == nil):
			continue // the request is given back
		case err != nil:
			return err
		case a.State == driver.Granted, a.State == driver.Gone && w.t.Policy.GoneAnswers:
			return nil
		}
		w.keep(a)
	}
}

// outcome reports whether the wait has an outcome, and stores it in a.
func (w *Waiter) outcome(a *Answer) (over bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		*a = *w.end
	}
	return w.end != nil || w.err != nil, w.err
}

// keep makes the keeper renew the ticket in a.
func (w *Waiter) keep(a *Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = a.State == driver.Busy
	w.s.keeper.Add(&w.task, w.queued(a.sent, a.Reply))
	if h := w.early; h != nil {
		w.early = nil
		w.act(*h)
	}
}

// askAgain asks again after the store dropped the ticket, or when it may be the waiter's
// turn. A store drops a ticket if it lost its data, or if it handed us the lock and its
// hint was lost. So this waiter then polls, until any hint reaches the session, except if
// the session has just subscribed again. askAgain stores the answer in a.
func (w *Waiter) askAgain(ctx context.Context, a *Answer) error {
	w.mu.Lock()
	if w.gone {
		w.poll, w.hints, w.gone = !w.resynced, w.s.hints.Load(), false
	}
	w.mu.Unlock()
	next, err := w.Queue(ctx)
	if err == nil {
		*a = next
	}
	return err
}

// Stop stops renewing the ticket, and waits for a renewal under way, which takes at most
// the time limit of one try.
func (w *Waiter) Stop() {
	if !w.waited {
		return
	}
	w.s.keeper.Remove(&w.task)
	w.mu.Lock()
	w.stopped = true
	if w.flying && w.landed == nil {
		w.landed = make(chan struct{})
	}
	landed := w.landed
	w.mu.Unlock()
	if landed != nil {
		<-landed
	}
}

// step removes w from its line. If w was the first, the next waiter asks soon: if all
// waiters before it in the store's queue have died, it gets no hint.
func (w *Waiter) step() {
	if next := w.s.lines.leave(w.req.Key, w.place); next != nil {
		w.s.keeper.Hurry(&next.task, w.s.Now().Add(timing.WatchEvery))
	}
}

// Progress is a waiter's view of its wait.
type Progress struct {
	Position int
	// Holder is the lease that lasts longest, as far as known.
	Holder driver.Holder
	Waited time.Duration
}

// progress describes the wait as it is now.
func (w *Waiter) progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.Now()
	return Progress{Position: w.lastSeen.position, Holder: w.lastSeen.now(now), Waited: now.Sub(w.began)}
}

// tell is not inlined: it would grow every waiter's stack.
//
//go:noinline
func (w *Waiter) tell(observe func(Progress)) { observe(w.progress()) }

// Unserved is the error of a wait that ended without a lease.
type Unserved struct {
	Progress
	Cause error // why it ended
	// Failed is the error of the last request, if it was not answered. Then the lock may
	// be free, or handed over to this waiter. It matches ErrUnknown.
	Failed error
}

func (u *Unserved) Error() string {
	if u.Failed != nil {
		return fmt.Sprintf("gave up after %s: %v: %v", u.Waited, u.Cause, u.Failed)
	}
	return fmt.Sprintf("gave up after %s: %v", u.Waited, u.Cause)
}

// Unwrap makes the error match its causes.
func (u *Unserved) Unwrap() []error {
	if u.Failed == nil {
		return []error{u.Cause}
	}
	return []error{u.Cause, u.Failed}
}

func (w *Waiter) giveUp(cause error) *Unserved {
	u := &Unserved{Progress: w.progress(), Cause: cause}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		u.Failed = earlierUnknown(w.failed) // as in Wait
	}
	return u
}
