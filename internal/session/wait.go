package session

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Wait sleeps until the ticket of which a tells is granted. Tickets that the store
// has dropped are asked for anew. observe, if it is not nil, is called by this
// goroutine with every answer of the store. An error of a wait that came to its end
// is an [*Unserved].
func (w *Waiter) Wait(ctx context.Context, a Answer, observe func(Progress)) (Grant, error) {
	g, err := w.wait(ctx, a, observe)
	g.Unanswered = w.unanswered
	return g, err
}

func (w *Waiter) wait(ctx context.Context, a Answer, observe func(Progress)) (Grant, error) {
	w.waited = true
	w.woken = make(chan struct{}, 1) // nothing wakes w before keep
	if !w.s.IsClosing() {
		w.s.listener.Open(w.s.Background)
	}
	w.place = w.s.lines.Join(w.req.Key, w)
	defer w.step()
	if observe != nil {
		w.news = make(chan struct{}, 1)
	}
	w.keep(a)
	for {
		select {
		case <-w.news:
			observe(w.progress())
			continue
		case <-ctx.Done():
			return Grant{}, w.giveUp(CauseOf(ctx))
		case <-w.s.closing:
			return Grant{}, w.giveUp(ErrClosed)
		case <-w.woken:
		}
		if g, err := w.outcome(); g != nil || err != nil {
			return deref(g), err
		}
		a, err := w.askAgain(ctx)
		switch {
		case ctx.Err() != nil:
			continue // the select tells; what was asked is given back
		case err != nil:
			return Grant{}, err
		case a.State == driver.Granted:
			return a.Grant(), nil
		}
		w.keep(a)
	}
}

func deref(g *Grant) Grant {
	if g == nil {
		return Grant{}
	}
	return *g
}

func (w *Waiter) outcome() (*Grant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grant, w.err
}

// keep has the ticket kept alive that a tells of.
func (w *Waiter) keep(a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.s.keeper.Add(&w.task, w.queued(a.sent, a.Reply))
	if h := w.early; h != nil {
		w.early = nil
		w.act(*h)
	}
}

// askAgain queues once more, after the store dropped the ticket: it lost its
// data, or handed us the lock and we did not hear of it. So this waiter asks
// instead of listening, until the session has heard a hint, for whomever, or if it
// has begun to listen anew just now.
func (w *Waiter) askAgain(ctx context.Context) (Answer, error) {
	w.mu.Lock()
	w.poll, w.hints, w.gone = !w.resynced, w.s.hints.Load(), false
	w.mu.Unlock()
	return w.Queue(ctx)
}

// step takes w out of its line, and has the next ask soon if w was the first.
func (w *Waiter) step() {
	if next, ok := w.s.lines.Leave(w.req.Key, w.place); ok {
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

// Unserved is the error of a wait that ended without a lease.
type Unserved struct {
	Progress
	Cause error // why it ended
	// Failed is what became of the last question, if the store did not answer: then
	// it is not known that the lock is held.
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

func (w *Waiter) giveUp(cause error) error {
	u := &Unserved{Progress: w.progress(), Cause: cause}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		u.Failed = Unknown(w.failed)
	}
	return u
}
