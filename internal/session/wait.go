package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Wait sleeps until the ticket of which a tells is granted, or, where that is an
// answer, gone. Tickets that the store has dropped are asked for anew. observe, if it
// is not nil, is called by this goroutine with every answer of the store. An error of a
// wait that came to its end is an [*Unserved]. a becomes what the store said last to
// an Acquire, or the grant.
//
// Thousands wait at a time: what they know is in the waiter and in a, and not on
// their stacks.
func (w *Waiter) Wait(ctx context.Context, a *Answer, observe func(Progress)) error {
	err := w.wait(ctx, a, observe)
	a.Unanswered = w.unanswered
	return unserved(err)
}

// unserved is err of a wait. It is not to make the stack of those who wait larger.
//
//go:noinline
func unserved(err error) error {
	if over := (*Unserved)(nil); errors.Is(err, driver.ErrUnavailable) && !errors.As(err, &over) {
		return unknown(err) // the lock may be handed over meanwhile
	}
	return err
}

func (w *Waiter) wait(ctx context.Context, a *Answer, observe func(Progress)) error {
	w.waited = true
	w.ctx = ctx
	w.woken = make(chan struct{}, 1) // nothing wakes w before keep
	w.s.Listen()
	w.place = w.s.lines.join(w.req.Key, w)
	if observe != nil {
		w.news = make(chan struct{}, 1)
	}
	w.keep(a)
	for {
		if err := w.s.over(ctx); err != nil {
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
			continue // what was asked is given back
		case err != nil:
			return err
		case a.State == driver.Granted, a.State == driver.Gone && w.t.Policy.GoneAnswers:
			return nil
		}
		w.keep(a)
	}
}

// outcome reports whether the wait has one, which a becomes.
func (w *Waiter) outcome(a *Answer) (over bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		*a = *w.end
	}
	return w.end != nil || w.err != nil, w.err
}

// keep has the ticket kept alive that a tells of.
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

// askAgain asks once more, after the store dropped the ticket, or when it seems to be
// its turn. A ticket is dropped by a store that lost its data, or that handed us the
// lock without our hearing of it. So this waiter asks instead of listening from then
// on, until the session has heard a hint, for whomever, or if it has begun to listen
// anew just now. The answer, if there is one, is in a.
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

// Stop ends the keeping of the ticket, and waits for a renewal under way, which takes
// the time of one try at most.
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

// step takes w out of its line, and has the next ask soon if w was the first: if all
// who stand before that one in the store's queue have died, nobody else tells it.
func (w *Waiter) step() {
	if next := w.s.lines.leave(w.req.Key, w.place); next != nil {
		w.s.keeper.Hurry(&next.task, w.s.Now().Add(timing.WatchEvery))
	}
}

// Progress is what a waiter knows about its wait.
type Progress struct {
	Position int
	// Holder is the lease that stays longest, as far as it is known by now.
	Holder driver.Holder
	Waited time.Duration
}

// progress describes the wait as it is now.
func (w *Waiter) progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.Now()
	return Progress{Position: w.sight.position, Holder: w.sight.now(now), Waited: now.Sub(w.began)}
}

// tell is not to make the stack of those who wait larger.
//
//go:noinline
func (w *Waiter) tell(observe func(Progress)) { observe(w.progress()) }

// Unserved is the error of a wait that ended without a lease.
type Unserved struct {
	Progress
	Cause error // why it ended
	// Failed is what became of the last question, if the store did not answer: then
	// it is not known that the lock is held, and it may be handed over to this waiter. It
	// matches ErrUnknown.
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
		u.Failed = unknown(w.failed) // as in Wait
	}
	return u
}
