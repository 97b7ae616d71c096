package server

import (
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// waiter is a ticket that is kept while its client waits. The lock is taken by
// the request itself, with an Acquire of its own, when it seems to be its turn:
// only then does the lease have the address of this service. The keeping ends
// when the lock is granted, the ticket gone, or kept for the last time.
type waiter struct {
	d     *desk
	req   *driver.Request // of the asking
	gone  func() bool     // whether the client has gone
	task  session.Task
	place session.Place // in its line; set before the ticket is kept
	turn  chan struct{} // holds a token when the request is to ask
	done  chan struct{} // closed when reply or err is final

	mu     sync.Mutex
	told   string         // the address that the ticket has
	poll   bool           // hints do not reach us
	over   *time.Duration // how long the ticket is to live when nobody waits any more
	last   bool           // the renewal under way is the last one
	landed chan struct{}  // closed when the renewal under way has been answered; nil if there is none
	reply  driver.Reply
	err    error
	kept   bool
	ended  bool
}

// newWaiter returns a waiter for a ticket that the store is about to be asked
// for.
func newWaiter(d *desk, req *driver.Request, poll bool, gone func() bool) *waiter {
	w := &waiter{
		d: d, req: req, gone: gone, told: req.HintAddress, poll: poll,
		turn: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.task = session.Task{Sink: w, Slack: 250 * time.Millisecond}
	return w
}

// keep has the ticket kept alive, of which was said when asking is useful next.
func (w *waiter) keep(next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = true
	w.d.keeper.Add(&w.task, w.queued(next))
}

// finish keeps the ticket for the last time: it lives for so long from now on,
// and has no address any more, since a lock that it is handed would not be
// confirmed.
func (w *waiter) finish(life time.Duration) {
	w.mu.Lock()
	w.over = &life
	w.mu.Unlock()
	w.d.keeper.Add(&w.task, clock.Now())
}

// address is where hints for this ticket go; empty if it asks.
func (w *waiter) address() string {
	if w.poll || w.over != nil {
		return ""
	}
	return w.d.address()
}

// Ask implements [session.Sink]. The ticket of a client that has gone is left
// alone: it may have been asked for by another replica, which the store knows by
// its address. The first of the line, whose turn it may be, asks itself.
func (w *waiter) Ask(time.Time) (driver.Ref, time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over == nil && (w.d.leads(w) || w.gone()) {
		w.call()
		return driver.Ref{}, 0, false
	}
	if w.ended {
		return driver.Ref{}, 0, false
	}
	w.told, w.last, w.landed = w.address(), w.over != nil, make(chan struct{})
	life := timing.TicketLife(w.told)
	try := life / 3
	if w.last {
		life, try = *w.over, w.d.s.cfg.storeTimeout
	}
	return driver.Ref{Key: w.req.Key, ID: w.req.ID, TTL: w.req.TTL, TicketTTL: life, HintAddress: w.told}, try, true
}

// Answer implements [session.Sink].
func (w *waiter) Answer(_ time.Time, reply driver.Reply, err error) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.landed)
	w.landed = nil
	switch {
	case w.ended:
		return time.Time{}
	case err != nil && (w.last || timing.Final(err)):
		w.end(driver.Reply{}, err)
	case err != nil:
		// The place is kept for the life of the ticket: go on asking.
		return clock.Now().Add(timing.Spread(timing.PollEvery))
	case reply.State == driver.Queued && !w.last:
		return w.queued(reply.RetryAfter)
	case reply.State == driver.Granted && !w.last:
		w.call()
	default:
		w.end(reply, nil)
	}
	return time.Time{}
}

// end settles the outcome. The caller holds mu.
func (w *waiter) end(reply driver.Reply, err error) {
	w.reply, w.err, w.ended = reply, err, true
	close(w.done)
}

// queued takes note of an answer and returns when to ask again. The caller
// holds mu.
func (w *waiter) queued(next time.Duration) time.Time {
	return clock.Now().Add(timing.AskIn(w.told, w.address(), w.d.leads(w), next))
}

// call has the request ask.
func (w *waiter) call() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// hint is a wake-up by the store. Nothing depends on it but speed. One that comes
// before the answer that it belongs to has the request ask again.
func (w *waiter) hint(h driver.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.kept, h.Kind == driver.HintGranted, h.Kind == driver.HintAsk && h.RetryAfter == 0:
		w.call()
	case h.Kind == driver.HintAsk:
		w.d.keeper.Hurry(&w.task, clock.Now().Add(h.RetryAfter+time.Millisecond))
	default:
		w.d.keeper.Hurry(&w.task, clock.Now())
	}
}

// outcome tells what came of the wait, after done.
func (w *waiter) outcome(got *driver.Reply) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	*got = w.reply
	return w.err
}

// stop ends the keeping of the ticket, and waits for what is under way.
func (w *waiter) stop() {
	w.mu.Lock()
	w.ended = true
	landed := w.landed
	w.mu.Unlock()
	if landed != nil {
		<-landed // bounded by the time of one try
	}
}
