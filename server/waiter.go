package server

import (
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/keeper"
	"github.com/leasehold-go/leasehold/internal/ticket"
)

// waiter is a ticket that is kept while its client waits. It is done when it
// is granted, gone, or has been kept for the last time.
type waiter struct {
	d     *desk
	req   *driver.Request // of the asking
	task  keeper.Task
	place ticket.Place  // in its line; guarded by the desk's mu
	done  chan struct{} // closed when reply or err is final

	mu     sync.Mutex
	told   string         // the address that the ticket has
	poll   bool           // hints do not reach us
	over   *time.Duration // how long the ticket is to live when nobody waits any more
	last   bool           // the renewal under way is the last one
	sent   time.Time      // when the renewal under way was sent
	landed chan struct{}  // closed when it has been answered; nil if there is none
	reply  driver.Reply
	err    error
	early  bool // a hint came before the answer that it belongs to
	kept   bool
	ended  bool
}

// newWaiter returns a waiter for a ticket that the store is about to be asked
// for.
func newWaiter(d *desk, req *driver.Request, poll bool) *waiter {
	w := &waiter{d: d, req: req, done: make(chan struct{}), told: req.Notify, poll: poll}
	w.task = keeper.Task{Sink: w, Slack: 250 * time.Millisecond}
	return w
}

// keep has the ticket kept alive, of which was said when asking is useful next.
func (w *waiter) keep(next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.queued(next)
	if w.kept = true; w.early {
		due = time.Now()
	}
	w.d.keeper.Add(&w.task, due)
}

// finish keeps the ticket for the last time: it lives for so long from now on,
// and has no address any more, since a lock that it is handed would not be
// confirmed.
func (w *waiter) finish(life time.Duration) {
	w.mu.Lock()
	w.over = &life
	w.mu.Unlock()
	w.d.keeper.Hurry(&w.task, time.Now())
}

// address is where hints for this ticket go; empty if it asks.
func (w *waiter) address() string {
	if w.poll || w.over != nil {
		return ""
	}
	return w.d.address()
}

// Ask implements [keeper.Sink].
func (w *waiter) Ask(now time.Time) (driver.Ref, time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return driver.Ref{}, 0, false
	}
	w.told, w.last, w.sent, w.landed = w.address(), w.over != nil, now, make(chan struct{})
	life := ticket.Life(w.told)
	try := life / 3
	if w.last {
		life, try = *w.over, w.d.s.cfg.storeTimeout
	}
	return driver.Ref{Key: w.req.Key, ID: w.req.ID, TTL: w.req.TTL, Wait: life, Notify: w.told}, try, true
}

// Answer implements [keeper.Sink].
func (w *waiter) Answer(_ time.Time, reply driver.Reply, err error) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.landed)
	w.landed = nil
	switch {
	case w.ended:
		return time.Time{}
	case err != nil && (w.last || ticket.Final(err)):
		w.end(driver.Reply{}, err)
	case err != nil:
		// The place is kept for the life of the ticket: go on asking.
		return time.Now().Add(ticket.Spread(ticket.PollEvery))
	case reply.State == driver.Queued && !w.last:
		return w.queued(reply.Next)
	case reply.State == driver.Granted && !time.Now().Before(w.sent.Add(w.req.TTL)):
		return time.Now() // the answer took longer than the lease lasts
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
	return time.Now().Add(ticket.AskIn(w.told, w.address(), w.d.leads(w), next))
}

// hint is a wake-up by the store. Nothing depends on it but speed. A lock that
// was handed over is confirmed before its client is told of it.
func (w *waiter) hint(h driver.Hint) {
	when := time.Now()
	if h.Kind == driver.HintAsk && h.Next > 0 {
		when = when.Add(h.Next + time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.early = !w.kept; !w.early {
		w.d.keeper.Hurry(&w.task, when)
	}
}

// outcome is what came of the wait, after done, and when the question was sent
// that it answers.
func (w *waiter) outcome() (driver.Reply, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reply, w.sent, w.err
}

// addressed is the address that the ticket has in the store.
func (w *waiter) addressed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told
}

// stop ends the keeping of the ticket, and returns the address that it has in
// the store when nothing is under way any more that could change it.
func (w *waiter) stop() string {
	w.mu.Lock()
	w.ended = true
	landed := w.landed
	w.mu.Unlock()
	if landed != nil {
		<-landed // bounded by the time of one try
	}
	return w.addressed()
}
