package leasehold

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/keeper"
	"github.com/leasehold-go/leasehold/internal/ticket"
)

// waiter is one call that waits in a queue. Its ticket is kept by the keeper;
// the caller's goroutine sleeps on woken.
type waiter struct {
	c     *Client
	cfg   *config
	req   driver.Request
	task  keeper.Task
	woken chan struct{} // holds one token
	news  chan struct{} // holds one token; nil if nobody observes the wait
	// unanswered tells of requests that may still be on their way. It belongs
	// to the caller's goroutine.
	unanswered bool
	place      ticket.Place // in the client's line; guarded by the client's mu
	waited     bool         // it came to that; belongs to the caller's goroutine

	mu       sync.Mutex
	answered time.Time     // when the question behind clock was sent
	clock    time.Duration // the store's clock in that answer
	position int
	holder   driver.Holder
	told     string       // the address that the ticket carries
	poll     bool         // hints do not reach us
	failed   error        // of the last question, until one is answered
	early    *driver.Hint // came before the answer that it belongs to
	grant    *grant       // the outcome: one of these three
	gone     bool         // the ticket is not there any more
	err      error
}

// waiters are those whose lock was free, so that they did not come to wait: most
// of them. Whatever else may still know a waiter is why one that did is not used
// again.
var waiters = sync.Pool{New: func() any {
	w := new(waiter)
	w.task = keeper.Task{Sink: w, Slack: 250 * time.Millisecond}
	return w
}}

func newWaiter(c *Client, cfg *config, req driver.Request) *waiter {
	w := waiters.Get().(*waiter)
	w.mu.Lock() // a hint to its last user may come this late
	defer w.mu.Unlock()
	w.c, w.cfg, w.req = c, cfg, req
	w.req.Notify = c.address()
	w.req.Wait = ticket.Life(w.req.Notify)
	w.told = w.req.Notify
	return w
}

// recycle is the end of a waiter that did not come to wait. No hint finds it any
// more.
func (w *waiter) recycle() {
	w.mu.Lock()
	w.c, w.cfg, w.req, w.unanswered, w.early = nil, nil, driver.Request{}, false, nil
	w.mu.Unlock()
	waiters.Put(w)
}

// address is where hints for this waiter go; empty if it polls.
func (w *waiter) address() string {
	if w.poll {
		return ""
	}
	return w.c.address()
}

// Ask implements [keeper.Sink].
func (w *waiter) Ask(time.Time) (driver.Ref, time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	address := w.address()
	w.told = address
	alive := ticket.Life(address)
	return driver.Ref{Key: w.req.Key, ID: w.req.ID, TTL: w.req.TTL, Wait: alive, Notify: address}, alive / 3, !w.settled()
}

// Answer implements [keeper.Sink].
func (w *waiter) Answer(sent time.Time, reply driver.Reply, err error) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settled() {
		return time.Time{}
	}
	switch {
	case err != nil && !ticket.Final(err):
		// The place is kept for the life of the ticket: go on asking.
		w.failed = err
		return w.c.now().Add(ticket.Spread(ticket.PollEvery))
	case err != nil:
		w.err = err
	case reply.State == driver.Queued, reply.State == driver.Busy:
		return w.queued(sent, reply)
	case reply.State == driver.Granted:
		deadline := w.cfg.deadline(sent, w.req.TTL)
		if now := w.c.now(); !now.Before(deadline) {
			w.failed = errLate
			return now // asked again, the store counts the lease afresh
		}
		w.grant = &grant{token: reply.Token, deadline: deadline, confirmed: true}
	case reply.Broken:
		w.err = forcedError(reply.Reason)
	default:
		w.gone = true
	}
	w.wake()
	return time.Time{}
}

// queued takes note of an answer and returns when to ask again. The caller
// holds mu.
func (w *waiter) queued(sent time.Time, reply driver.Reply) time.Time {
	w.answered, w.clock, w.position = sent, reply.Clock, reply.Position
	w.failed = nil
	if len(reply.Holders) > 0 {
		w.holder = reply.Holders[0]
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
	wait := ticket.AskIn(w.told, w.address(), w.c.leads(w), reply.Next)
	return w.c.now().Add(wait)
}

// hint is a wake-up by the store. Nothing depends on it but speed.
func (w *waiter) hint(h driver.Hint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settled() || h.ID != w.req.ID && h.Kind != driver.HintResync {
		return
	}
	if w.answered.IsZero() {
		w.early = &h // it overtook the answer that we are queued
		return
	}
	w.act(h)
}

// act does what a hint says. The caller holds mu.
func (w *waiter) act(h driver.Hint) {
	now := w.c.now()
	if h.Kind == driver.HintGranted {
		if handed, ok := w.since(h, now); ok {
			w.grant = &grant{token: h.Token, deadline: w.cfg.deadline(handed, h.Confirm), handed: handed}
			w.wake()
			return
		}
	}
	if h.Kind == driver.HintAsk && h.Next > 0 {
		now = now.Add(h.Next + time.Millisecond)
	}
	w.c.keeper.Hurry(&w.task, now)
}

// since returns from when a lease counts that was handed over, without a round
// trip: the store's clock was at w.clock at w.answered or later, so it was at
// h.Clock at that much after w.answered or later, or a little earlier if its
// clock is the faster one. It is counted from there, and never from later than
// now. Without a usable bound, or if it is over by now, it is safer to ask.
func (w *waiter) since(h driver.Hint, now time.Time) (time.Time, bool) {
	passed := h.Clock - w.clock
	if w.clock == 0 || passed < 0 {
		return time.Time{}, false
	}
	at := w.answered.Add(passed - time.Duration(float64(passed)*w.cfg.drift))
	if at.After(now) {
		at = now
	}
	return at, now.Before(w.cfg.deadline(at, h.Confirm))
}

func (w *waiter) settled() bool { return w.grant != nil || w.gone || w.err != nil }

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// wait sleeps until the ticket is granted. Tickets that the store has dropped
// are asked for anew.
func (w *waiter) wait(ctx context.Context, started time.Time, a answer) (grant, error) {
	w.waited = true
	w.woken = make(chan struct{}, 1) // nothing wakes w before keep
	w.c.subscribe()
	w.c.line(w)
	defer w.c.step(w)
	observe := observer(ctx)
	if observe != nil {
		w.news = make(chan struct{}, 1)
	}
	w.keep(a)
	for {
		select {
		case <-w.news:
			observe(w.event(started))
			continue
		case <-ctx.Done():
			return grant{}, w.giveUp(causeOf(ctx), started)
		case <-w.c.closing:
			return grant{}, w.giveUp(ErrClosed, started)
		case <-w.woken:
		}
		if g, err := w.outcome(); g != nil || err != nil {
			return deref(g), err
		}
		a, err := w.askAgain(ctx)
		switch {
		case ctx.Err() != nil:
			continue // the select tells; what was asked is given back
		case err != nil && !ticket.Final(err):
			w.retry(ctx, err)
			continue
		case err != nil:
			return grant{}, err
		case a.State == driver.Granted:
			return a.grant(w.cfg), nil
		}
		w.keep(a)
	}
}

func deref(g *grant) grant {
	if g == nil {
		return grant{}
	}
	return *g
}

func (w *waiter) outcome() (*grant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grant, w.err
}

// keep has the ticket kept alive that a tells of.
func (w *waiter) keep(a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.c.keeper.Add(&w.task, w.queued(a.sent, a.Reply))
	if h := w.early; h != nil {
		w.early = nil
		w.act(*h)
	}
}

// retry pauses after a question that was not answered. A store that is away for
// a while does not end a wait.
func (w *waiter) retry(ctx context.Context, err error) {
	w.mu.Lock()
	w.failed = err
	w.mu.Unlock()
	if w.c.sleep(ctx, ticket.Spread(ticket.PollEvery)) {
		w.wake()
	}
}

// ask asks for the lock, and for a place in the queue.
func (w *waiter) ask(ctx context.Context) (answer, error) {
	a, err := w.c.ask(ctx, w.cfg, &w.req)
	w.unanswered = w.unanswered || a.unanswered
	return a, err
}

// askAgain queues once more, after the store dropped the ticket: it lost its
// data, or handed us the lock and we did not hear of it. From now on this
// waiter therefore asks instead of listening.
func (w *waiter) askAgain(ctx context.Context) (answer, error) {
	w.mu.Lock()
	w.poll, w.gone, w.told = true, false, ""
	w.mu.Unlock()
	w.req.Notify, w.req.Wait = "", ticket.PollLife
	return w.ask(ctx)
}

// giveUp describes a wait that ended unserved. If the store did not answer last
// it is not known that the lock is held.
func (w *waiter) giveUp(cause error, started time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	waited := w.c.now().Sub(started)
	if w.failed != nil {
		return fmt.Errorf("gave up after %s: %w: %w", round(waited), cause, unknown(w.failed))
	}
	return &HeldError{
		Key: w.req.Key, Owner: w.holder.Owner, Remaining: w.holder.Remaining,
		Position: w.position, Waited: waited, Cause: cause,
	}
}

// line puts w at the end of the client's waiters for its lock. Only those who
// have to wait stand in it.
func (c *Client) line(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.place = c.lines.Join(w.req.Key, w)
}

// step takes w out of its line, and has the next ask soon if w was the first.
func (c *Client) step(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next, ok := c.lines.Leave(w.req.Key, w.place); ok {
		c.keeper.Hurry(&next.task, c.now().Add(ticket.WatchEvery))
	}
}

// leads reports whether w is the first of its line.
func (c *Client) leads(w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines.First(w.req.Key, w.place)
}

// subscribe starts to listen for hints when first somebody waits.
func (c *Client) subscribe() {
	if c.watcher == nil {
		return
	}
	c.mu.Lock()
	start := c.sub == nil && !c.opening && !c.closed
	c.opening = c.opening || start
	c.mu.Unlock()
	if !start {
		return
	}
	c.background(func() {
		sub, err := c.watcher.Watch(c.hint)
		if err != nil {
			c.cfg.log.Warn("leasehold: no wake-ups, waiting by asking", "error", err)
		}
		c.mu.Lock()
		c.opening = false
		if err == nil {
			c.sub = sub
		}
		c.mu.Unlock()
		c.hint(driver.Hint{Kind: driver.HintResync})
	})
}

// address is where this client hears hints; empty while it does not.
func (c *Client) address() string {
	c.mu.Lock()
	sub := c.sub
	c.mu.Unlock()
	if sub == nil {
		return ""
	}
	return sub.Address()
}

// hint passes a wake-up on to whom it concerns.
func (c *Client) hint(h driver.Hint) {
	if h.Kind == driver.HintResync {
		for _, w := range c.allWaiters() {
			w.hint(h)
		}
		return
	}
	c.mu.Lock()
	w, held := c.waiters[h.ID], c.holds[h.ID]
	c.mu.Unlock()
	switch {
	case h.Kind == driver.HintBroken && held != nil:
		held.forced(h.Reason)
	case w != nil:
		w.hint(h)
	}
}

func (c *Client) allWaiters() []*waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*waiter, 0, len(c.waiters))
	for _, w := range c.waiters {
		all = append(all, w)
	}
	return all
}
