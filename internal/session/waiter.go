package session

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Waiter is one call that waits in a queue. Its ticket is kept by the keeper;
// the caller's goroutine sleeps on woken.
type Waiter struct {
	s     *Session
	t     *Terms
	req   driver.Request
	task  task
	woken chan struct{} // holds one token
	news  chan struct{} // holds one token; nil if nobody observes the wait
	place place         // in the session's line; set before the ticket is kept
	next  *Waiter       // of the same lease id; guarded by the session's mutex

	// These belong to the caller's goroutine.
	began      time.Time
	unanswered bool // requests may still be on their way
	waited     bool // it came to that

	ctx context.Context // of the wait; set before the ticket is kept

	mu       sync.Mutex
	answered time.Time     // when the question behind clock was sent
	clock    time.Duration // the store's clock in that answer
	sight    sight
	asked    bool          // a request has left
	told     string        // the address that the ticket carries
	poll     bool          // hints do not reach us
	hints    uint64        // hints by the session when poll was set
	resynced bool          // the session listens anew since the last answer
	failed   error         // of the last question, until one is answered
	failures int           // in a row
	failing  time.Time     // since when
	early    *driver.Hint  // came before the answer that it belongs to
	busy     bool          // the store keeps no ticket: it was Busy
	stopped  bool          // it is not kept any more
	flying   bool          // a renewal of the ticket is under way
	landed   chan struct{} // closed when it has been answered; nil if nobody waits for that
	end      *Answer       // the outcome: one of these three
	gone     bool          // the ticket is not there any more
	err      error
}

// waiters are those whose lock was free, so that they did not come to wait: most
// of them. Whatever else may still know a waiter is why one that did is not used
// again.
var waiters = sync.Pool{New: func() any {
	w := new(Waiter)
	w.task = task{of: w}
	return w
}}

// NewWaiter returns a waiter that is about to ask what req says, unless the session
// is closed. It is to be closed.
func (s *Session) NewWaiter(t *Terms, req *driver.Request) (*Waiter, error) {
	w := waiters.Get().(*Waiter)
	w.mu.Lock() // a hint to its last user may come this late
	w.s, w.t, w.req = s, t, *req
	w.mu.Unlock()
	if err := s.addWaiter(w); err != nil {
		w.recycle()
		return nil, err
	}
	return w, nil
}

// Close ends the waiter, which is not used any more.
func (w *Waiter) Close() {
	s, waited := w.s, w.waited
	if waited {
		s.keeper.Remove(&w.task)
		w.step()
	}
	s.dropWaiter(w)
	if !waited {
		w.recycle()
	}
}

// Queue asks for the lock, and for a place in the queue. If it returns an error, or
// the wait that follows does, what was asked for is to be undone.
func (w *Waiter) Queue(ctx context.Context) (a Answer, err error) {
	a.patient = true
	err = w.s.ask(ctx, w.t, &w.req, w, &a)
	if w.began.IsZero() {
		w.began = a.began
	}
	w.unanswered = w.unanswered || a.Unanswered
	return a, err
}

// Undo gives back in the background whatever has become of what was asked.
func (w *Waiter) Undo(ctx context.Context) { w.s.Undo(ctx, w.t, &w.req, w.unanswered) }

// Unanswered tells of requests that may still be on their way.
func (w *Waiter) Unanswered() bool { return w.unanswered }

// appendTo appends the waiters for one lease id.
func (w *Waiter) appendTo(all []*Waiter) []*Waiter {
	for ; w != nil; w = w.next {
		all = append(all, w)
	}
	return all
}

// aim has what is about to be sent carry the address where hints are heard now,
// so that the ticket need not be told of it by another request.
func (w *Waiter) aim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.told = true, w.address()
	w.req.HintAddress, w.req.TicketTTL = w.told, timing.TicketLife(w.told)
}

// recycle is the end of a waiter that did not come to wait. No hint finds it any
// more.
func (w *Waiter) recycle() {
	w.mu.Lock()
	w.s, w.t, w.req, w.asked, w.unanswered, w.early, w.failed, w.began = nil, nil, driver.Request{}, false, false, nil, nil, time.Time{}
	w.mu.Unlock()
	waiters.Put(w)
}

// missed notes why an Acquire was not answered although its caller had time: a wait that
// ends then does not know whether the lock is held. It is nil once one is answered.
func (w *Waiter) missed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
}

// address is where hints for this waiter go; empty if it polls, until hints
// arrive again. The caller holds mu.
func (w *Waiter) address() string {
	if w.poll = w.poll && w.s.hints.Load() == w.hints; w.poll {
		return ""
	}
	return w.s.Address()
}

// Ask implements [renewable]. The ticket of somebody who has gone is left alone: it may
// have been asked for by another process since, which the store knows by its address.
func (w *Waiter) Ask(time.Time) (driver.Ref, time.Duration, bool) {
	left := w.ctx.Err() != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.settled() || w.stopped:
		return driver.Ref{}, 0, false
	case left || w.asksItself():
		w.wake()
		return driver.Ref{}, 0, false
	}
	w.flying = true
	w.told = w.address()
	life := timing.TicketLife(w.told)
	return driver.Ref{Key: w.req.Key, ID: w.req.ID, TTL: w.req.TTL, TicketTTL: life, HintAddress: w.told}, life / 3, true
}

// asksItself reports whether the next question is an Acquire: of the first of a line,
// whose turn it may be, and where the store keeps no ticket. The caller holds mu.
func (w *Waiter) asksItself() bool {
	return w.t.Policy.AskFirst && (w.busy || w.s.lines.first(w.req.Key, w.place))
}

// Slack implements [renewable].
func (*Waiter) Slack() time.Duration { return 250 * time.Millisecond }

// Answer implements [renewable].
func (w *Waiter) Answer(sent time.Time, reply driver.Reply, err error) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying = false
	if w.landed != nil {
		close(w.landed)
		w.landed = nil
	}
	if w.settled() || w.stopped {
		return time.Time{}
	}
	switch {
	case err != nil && !timing.Permanent(err):
		// The place is kept for the life of the ticket: go on asking.
		if w.failed = err; w.failures == 0 {
			w.failing = sent
		}
		w.failures++
		if left := w.patience(); !w.t.tired(left) {
			return w.s.Now().Add(min(timing.RetryIn(w.told, w.failures), left))
		}
		w.err = unknown(w.s.away(w.failing, err)) // the lock may be handed over meanwhile
	case err != nil:
		w.err = err
	case reply.State == driver.Queued, reply.State == driver.Busy:
		return w.queued(sent, reply)
	case reply.State == driver.Granted && w.t.Policy.AskFirst:
		// It is taken by whoever is woken.
	case reply.State == driver.Granted:
		if now := w.s.Now(); w.t.tooLate(now, sent, w.req.TTL) {
			w.failed = timing.ErrLate
			return now
		}
		w.end = &Answer{Reply: reply, sent: sent}
	case reply.Broken && w.t.Policy.GoneAnswers:
		w.end = &Answer{Reply: reply, sent: sent}
	case reply.Broken:
		w.err = Broken(reply.Reason)
	default:
		w.gone = true
	}
	w.wake()
	return time.Time{}
}

// patience returns how much longer w asks a store that does not answer it: the time
// counts from the last answer to the session. The caller holds mu.
func (w *Waiter) patience() time.Duration {
	return w.t.outage(w.s.outage.heard.since(w.s, w.failing), w.s.Now())
}

// queued takes note of an answer and returns when to ask again. The caller
// holds mu.
func (w *Waiter) queued(sent time.Time, reply driver.Reply) time.Time {
	w.answered, w.clock, w.resynced = sent, reply.Clock, false
	w.failed, w.failures = nil, 0
	w.sight.answer(sent, &reply)
	select {
	case w.news <- struct{}{}:
	default:
	}
	wait := timing.AskIn(w.told, w.address(), w.s.lines.first(w.req.Key, w.place), reply.RetryAfter)
	return w.s.Now().Add(wait)
}

// hint is a wake-up by the store. Nothing depends on it but speed.
func (w *Waiter) hint(h driver.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settled() || !w.asked || h.ID != w.req.ID && h.Kind != driver.HintResync || h.Kind == driver.HintBroken && h.Key != w.req.Key {
		return
	}
	if w.answered.IsZero() {
		w.early = &h // it overtook the answer that we are queued
		return
	}
	w.act(h)
}

// act does what a hint says. The caller holds mu.
func (w *Waiter) act(h driver.Hint) {
	now := w.s.Now()
	if w.t.Policy.AskFirst && (h.Kind == driver.HintGranted || h.Kind == driver.HintAsk && h.RetryAfter == 0) {
		w.wake()
		return
	}
	if h.Kind == driver.HintGranted {
		if handed, ok := w.since(h, now); ok {
			w.end = &Answer{Reply: driver.Reply{State: driver.Granted, Token: h.Token}, sent: handed, window: h.ConfirmWindow}
			w.wake()
			return
		}
	}
	switch h.Kind {
	case driver.HintResync:
		w.resynced = true
	case driver.HintAsk:
		if w.sight.lead(now, h.RetryAfter); h.RetryAfter > 0 {
			now = now.Add(h.RetryAfter + time.Millisecond)
		}
	}
	w.s.keeper.Hurry(&w.task, now)
}

// since returns from when a lease counts that was handed over, without a round
// trip: the store's clock was at w.clock at w.answered or later, so it was at
// h.Clock at that much after w.answered or later, or a little earlier if its
// clock is the faster one. It is counted from there, and never from later than
// now. Without a usable bound, or if it is over by now, it is safer to ask.
func (w *Waiter) since(h driver.Hint, now time.Time) (time.Time, bool) {
	passed := h.Clock - w.clock
	if w.clock == 0 || passed < 0 {
		return time.Time{}, false
	}
	at := w.answered.Add(passed - time.Duration(float64(passed)*w.t.Drift))
	if at.After(now) {
		at = now
	}
	return at, !w.t.tooLate(now, at, h.ConfirmWindow)
}

func (w *Waiter) settled() bool { return w.end != nil || w.gone || w.err != nil }

func (w *Waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}
