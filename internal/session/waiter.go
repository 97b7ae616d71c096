package session

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Waiter is one call that waits in a queue. The keeper renews its ticket; the caller's
// goroutine sleeps on woken.
type Waiter struct {
	s     *Session
	t     *Terms
	req   driver.Request
	task  task
	woken chan struct{} // holds one wake-up
	news  chan struct{} // holds one wake-up; nil without an observer
	place place         // in the session's line; set before the ticket is kept
	next  *Waiter       // of the same lease id; guarded by the session's mutex

	// These belong to the caller's goroutine.
	began      time.Time
	unanswered bool // requests may still reach the store
	waited     bool // Wait was called

	ctx context.Context // of the wait; set before the ticket is kept

	mu            sync.Mutex
	answered      time.Time     // when the request whose answer set clock was sent
	clock         time.Duration // the store's clock in that answer
	lastSeen      lastSeen
	asked         bool          // a request was sent
	ticketAddress string        // the address that the ticket has in the store
	poll          bool          // hints do not reach us
	hints         uint64        // the session's count of hints when poll was set
	resynced      bool          // the session has subscribed again since the last answer
	failed        error         // error of the last request, until one is answered
	failures      int           // in a row
	failing       time.Time     // when the first of these failures was sent
	early         *driver.Hint  // arrived before the answer to the first request
	busy          bool          // the store answered Busy, so it keeps no ticket
	stopped       bool          // Stop was called
	flying        bool          // a renewal of the ticket is under way
	landed        chan struct{} // closed when that has been answered; nil if Stop does not wait
	end           *Answer       // the outcome: one of end, gone and err
	gone          bool          // the ticket no longer exists
	err           error
}

// waiters pools waiters that did not call Wait, which is most, because their lock was
// free. A waiter that was queued may still be referenced, so it is not pooled.
var waiters = sync.Pool{New: func() any {
	w := new(Waiter)
	w.task = task{of: w}
	return w
}}

// NewWaiter returns a waiter for req, unless the session is closed. The caller must close
// it.
func (s *Session) NewWaiter(t *Terms, req *driver.Request) (*Waiter, error) {
	w := waiters.Get().(*Waiter)
	w.mu.Lock() // a hint for the last user may come this late
	w.s, w.t, w.req = s, t, *req
	w.mu.Unlock()
	if err := s.addWaiter(w); err != nil {
		w.recycle()
		return nil, err
	}
	return w, nil
}

// Close ends the waiter. The caller must not use it afterwards.
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

// Queue asks for the lock, and for a place in the queue. If it or the following wait
// returns an error, the caller must undo the request.
func (w *Waiter) Queue(ctx context.Context) (a Answer, err error) {
	a.waits = true
	err = w.s.ask(ctx, w.t, &w.req, w, &a)
	if w.began.IsZero() {
		w.began = a.began
	}
	w.unanswered = w.unanswered || a.Unanswered
	return a, err
}

// Undo undoes the effects of the waiter's requests in the background.
func (w *Waiter) Undo(ctx context.Context) { w.s.Undo(ctx, w.t, &w.req, w.unanswered) }

// Unanswered reports whether requests may still reach the store.
func (w *Waiter) Unanswered() bool { return w.unanswered }

// appendTo appends w and the other waiters with its lease id.
func (w *Waiter) appendTo(all []*Waiter) []*Waiter {
	for ; w != nil; w = w.next {
		all = append(all, w)
	}
	return all
}

// aim puts the current hint address into the next request, so that the ticket needs no
// second request to add it.
func (w *Waiter) aim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.ticketAddress = true, w.address()
	w.req.HintAddress, w.req.TicketTTL = w.ticketAddress, timing.TicketLife(w.ticketAddress)
}

// recycle returns a waiter that did not call Wait to the pool. Hints no longer find it.
func (w *Waiter) recycle() {
	w.mu.Lock()
	w.s, w.t, w.req, w.asked, w.unanswered, w.early, w.failed, w.began = nil, nil, driver.Request{}, false, false, nil, nil, time.Time{}
	w.mu.Unlock()
	waiters.Put(w)
}

// missed records the error of an Acquire that was not answered in time: a wait that ends
// after it does not know whether the lock is held. err is nil after an answer.
func (w *Waiter) missed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
}

// address returns where to send hints for this waiter, or "" while it polls because hints
// do not arrive. The caller holds mu.
func (w *Waiter) address() string {
	if w.poll = w.poll && w.s.hints.Load() == w.hints; w.poll {
		return ""
	}
	return w.s.Address()
}

// Ask implements [renewable]. It does not renew the ticket of a caller that has left:
// another process may have taken the ticket over, and the store sends hints to the
// address of the last request.
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
	w.ticketAddress = w.address()
	life := timing.TicketLife(w.ticketAddress)
	return driver.Ref{Key: w.req.Key, ID: w.req.ID, TTL: w.req.TTL, TicketTTL: life, HintAddress: w.ticketAddress}, life / 3, true
}

// asksItself reports whether the next request must be an Acquire: for the first of a
// line, whose turn it may be, and if the store keeps no ticket. The caller holds mu.
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
		// The store keeps the place for the life of the ticket, so try again.
		if w.failed = err; w.failures == 0 {
			w.failing = sent
		}
		w.failures++
		if left := w.timeLeft(); !w.t.givesUp(left) {
			return w.s.Now().Add(min(timing.RetryIn(w.ticketAddress, w.failures), left))
		}
		w.err = earlierUnknown(w.s.withElapsed(w.failing, err)) // the lock may be handed over later
	case err != nil:
		w.err = err
	case reply.State == driver.Queued, reply.State == driver.Busy:
		return w.queued(sent, reply)
	case reply.State == driver.Granted && w.t.Policy.AskFirst:
		// The caller's goroutine takes it by an Acquire.
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

// timeLeft returns how much longer to repeat an unanswered request, counted from the
// session's last answer. The caller holds mu.
func (w *Waiter) timeLeft() time.Duration {
	return w.t.outage(w.s.outage.heard.since(w.s, w.failing), w.s.Now())
}

// queued records an answer and returns when to ask again. The caller holds mu.
func (w *Waiter) queued(sent time.Time, reply driver.Reply) time.Time {
	w.answered, w.clock, w.resynced = sent, reply.Clock, false
	w.failed, w.failures = nil, 0
	w.lastSeen.answer(sent, &reply)
	select {
	case w.news <- struct{}{}:
	default:
	}
	wait := timing.AskIn(w.ticketAddress, w.address(), w.s.lines.first(w.req.Key, w.place), reply.RetryAfter)
	return w.s.Now().Add(wait)
}

// hint receives a wake-up from the store. Hints affect only the speed of a wait.
func (w *Waiter) hint(h driver.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settled() || !w.asked || h.ID != w.req.ID && h.Kind != driver.HintResync || h.Kind == driver.HintBroken && h.Key != w.req.Key {
		return
	}
	if w.answered.IsZero() {
		w.early = &h // it overtook the answer Queued
		return
	}
	w.act(h)
}

// act acts on a hint. The caller holds mu.
func (w *Waiter) act(h driver.Hint) {
	now := w.s.Now()
	if w.t.Policy.AskFirst && (h.Kind == driver.HintGranted || h.Kind == driver.HintAsk && h.RetryAfter == 0) {
		w.wake()
		return
	}
	if h.Kind == driver.HintGranted {
		if handed, ok := w.since(h, now); ok {
			w.end = &Answer{Reply: driver.Reply{State: driver.Granted, Token: h.Token, Places: h.Places}, sent: handed, window: h.ConfirmWindow}
			w.wake()
			return
		}
	}
	switch h.Kind {
	case driver.HintResync:
		w.resynced = true
	case driver.HintAsk:
		if w.lastSeen.lead(now, h.RetryAfter); h.RetryAfter > 0 {
			now = now.Add(h.RetryAfter + time.Millisecond)
		}
	}
	w.s.keeper.Hurry(&w.task, now)
}

// since returns the origin of a handed-over lease without a round trip. The store's clock
// showed w.clock at w.answered or later. So it showed h.Clock at w.answered plus the
// difference or later, or slightly earlier if its clock is faster; hence the correction by
// Drift. The origin is never later than now. since returns false without a usable bound,
// or if that lease would already be over; then it is safer to ask.
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
