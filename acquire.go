package leasehold

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/ticket"
)

// askBudget bounds for how long a store that does not answer is asked, when
// nothing has been granted or queued yet.
const askBudget = 10 * time.Second

// askTry bounds one try, for stores that do not bound it themselves.
const askTry = 5 * time.Second

// unavailableTries is how often a store that certainly did nothing is asked.
const unavailableTries = 3

// request is what a kind of lock asks for; the rest is the same for all.
type request struct {
	c      *Client
	cfg    *config
	key    string
	mode   driver.Mode
	policy driver.Policy
	limit  int
	weight int
}

// lockRequest is what the constructors of all kinds have in common: it refuses
// what can never be served. Locks without options of their own share the
// client's.
func (c *Client) lockRequest(key string, opts []Option, mode driver.Mode, limit int) (request, error) {
	r := request{c: c, cfg: &c.cfg, key: key, mode: mode, limit: limit, weight: 1}
	if err := check("key", key, MaxKey); err != nil {
		return r, lockError(key, err)
	}
	if len(opts) > 0 {
		cfg, err := c.cfg.with(opts)
		if err != nil {
			return r, lockError(key, err)
		}
		r.cfg = &cfg
	}
	r.policy = r.cfg.policy
	if _, ok := c.drv.(driver.Selective); ok { // most are not, and a request has its price
		if err := driver.Supports(c.drv, r.request()); err != nil {
			return r, lockError(key, err)
		}
	}
	return r, nil
}

// acquire is the one way into a room.
func (r *request) acquire(ctx context.Context, wait bool) (*Lease, error) {
	l, err := r.enter(ctx, wait)
	if err != nil {
		r.c.counts.refused.Add(1)
	}
	return l, err
}

// enter asks, waits if it may, and returns a lease whose context derives from
// ctx.
func (r *request) enter(ctx context.Context, wait bool) (*Lease, error) {
	if outer, ok := ctx.Value(r).(*Lease); ok && outer.State() != Released {
		// To read under a read lease is to re-enter; a place is no read lease.
		reads := r.mode == driver.Shared && r.limit == 0 && outer.hold.limit == 0
		switch mode := outer.hold.side(); {
		case mode == driver.Exclusive || reads:
			return r.reenter(ctx, outer)
		case r.mode == driver.Exclusive:
			return nil, lockError(r.key, errUpgrade)
		}
	}
	t := r.trail(ctx, wait)
	l, err := r.come(t.context(ctx), wait, t)
	t.failed(r, err)
	return l, err
}

// come enters from outside.
func (r *request) come(ctx context.Context, wait bool, t *trail) (*Lease, error) {
	if err := causeOf(ctx); err != nil {
		return nil, lockError(r.key, err)
	}
	switch {
	case !wait || r.cfg.maxWait == 0:
		return r.try(ctx, t)
	case r.cfg.maxWait > 0:
		bound, cancel := context.WithTimeoutCause(ctx, r.cfg.maxWait, errMaxWait)
		defer cancel()
		return r.lock(ctx, bound, t)
	}
	return r.lock(ctx, ctx, t)
}

// reenter shares the lease that ctx runs under. If that was lost, what runs
// under it must not begin afresh.
func (r *request) reenter(ctx context.Context, outer *Lease) (*Lease, error) {
	l := newLease(ctx, outer.hold)
	if l.ctx.Err() == nil {
		return l, nil
	}
	cause := context.Cause(l.ctx.Context)
	_ = l.Release() // what it says is the cause once more
	return nil, lockError(r.key, fmt.Errorf("re-entry: %w", cause))
}

// try asks once.
func (r *request) try(ctx context.Context, t *trail) (*Lease, error) {
	if err := r.c.begin(nil); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.finish(nil)
	return r.once(ctx, ctx, t)
}

// once asks without queueing, until bound ends; ctx is the parent of the lease.
func (r *request) once(ctx, bound context.Context, t *trail) (*Lease, error) {
	req := r.request()
	a, err := r.c.ask(bound, r.cfg, &req)
	if a.unanswered && a.State != driver.Granted {
		r.c.abandon(ctx, r.cfg, &req, true)
	}
	switch {
	case err != nil:
		return nil, lockError(r.key, err)
	case a.State == driver.Granted:
		return r.lease(ctx, &req, a.grant(r.cfg), t)
	case a.State == driver.Busy:
		return nil, a.held(r.key)
	}
	return nil, lockError(r.key, fmt.Errorf("%w: the store refuses the lease id", ErrUnknown))
}

// lock waits until bound ends; ctx is the parent of the lease.
func (r *request) lock(ctx, bound context.Context, t *trail) (*Lease, error) {
	if r.cfg.retry != nil {
		return r.again(ctx, bound, t)
	}
	req := r.request()
	w := newWaiter(r.c, r.cfg, req)
	if err := r.c.begin(w); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.finish(w)

	a, err := w.ask(bound)
	if err != nil && !w.unanswered {
		return nil, lockError(r.key, err)
	}
	g := a.grant(r.cfg)
	if err == nil && a.State != driver.Granted {
		t.waiting(a.Position, a.owner())
		g, err = w.wait(bound, a.began, a)
	}
	if err != nil {
		// Whatever the ticket has become, it is given back.
		r.c.abandon(ctx, r.cfg, &w.req, w.unanswered)
		return nil, r.path(err)
	}
	g.unanswered = w.unanswered
	return r.lease(ctx, &w.req, g, t)
}

// again asks without a queue, as WithRetry says.
func (r *request) again(ctx, bound context.Context, t *trail) (*Lease, error) {
	if err := r.c.begin(nil); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.finish(nil)
	started := r.c.now()
	for attempt := 1; ; attempt++ {
		l, err := r.once(ctx, bound, t)
		var busy *HeldError
		if !errors.As(err, &busy) {
			return l, err
		}
		if n := r.cfg.retry.Attempts; n > 0 && attempt >= n {
			busy.Waited, busy.Cause = r.c.now().Sub(started), fmt.Errorf("%d attempts", n)
			return nil, busy
		}
		t.waiting(0, busy.Owner)
		pause := time.NewTimer(r.cfg.retry.spread(attempt))
		select {
		case <-pause.C:
			if bound.Err() == nil {
				continue
			}
			busy.Cause = causeOf(bound) // both came at once: nothing more can be asked
		case <-bound.Done():
			busy.Cause = causeOf(bound)
		case <-r.c.closing:
			busy.Cause = ErrClosed
		}
		pause.Stop()
		busy.Waited = r.c.now().Sub(started)
		return nil, busy
	}
}

// path prefixes err unless it is a HeldError, which tells its path itself.
func (r *request) path(err error) error {
	if held := (*HeldError)(nil); errors.As(err, &held) {
		return held
	}
	return lockError(r.key, err)
}

func (r *request) lease(ctx context.Context, req *driver.Request, g grant, t *trail) (*Lease, error) {
	h, err := r.c.hold(ctx, r.cfg, req, g, t)
	if err != nil {
		return nil, lockError(r.key, err)
	}
	return newLease(t.context(ctx), h), nil
}

func (r *request) request() driver.Request {
	return driver.Request{
		Key: r.key, ID: rand.Text(), Owner: r.cfg.owner, Reenter: r.cfg.reenter,
		Labels: r.cfg.labels, Since: time.Now(), Mode: r.mode, Policy: r.policy, Ordered: r.cfg.ordered,
		Limit: r.limit, Weight: r.weight, TTL: r.cfg.ttl, Confirm: ticket.Window(r.cfg.ttl),
		Delay: r.cfg.lockDelay, MinToken: r.cfg.minToken,
	}
}

// answer is what the store said to a request.
type answer struct {
	driver.Reply
	began time.Time // when the first try was sent
	sent  time.Time // when the one that was answered was
	// unanswered tells of tries that may still be on their way.
	unanswered bool
}

func (a *answer) grant(cfg *config) grant {
	return grant{token: a.Token, deadline: cfg.deadline(a.sent, cfg.ttl), confirmed: true, alone: a.Alone, unanswered: a.unanswered}
}

func (a *answer) held(key string) *HeldError {
	e := &HeldError{Key: key, Owner: a.owner(), Remaining: a.Next, Closed: a.Next > 0 && len(a.Holders) == 0}
	if len(a.Holders) > 0 {
		e.Remaining = a.Holders[0].Remaining
	}
	return e
}

// owner is that of the lease that stays longest, empty if it is not known.
func (a *answer) owner() string {
	if len(a.Holders) == 0 {
		return ""
	}
	return a.Holders[0].Owner
}

// ask sends req until it is answered. It is repeated with the same id, so that
// an answer that was lost is given again. What a try that was not answered may
// still do is for the caller to undo.
func (c *Client) ask(ctx context.Context, cfg *config, req *driver.Request) (a answer, err error) {
	var last error
	for attempt := 1; ; attempt++ {
		if a.sent = c.now(); attempt == 1 {
			a.began = a.sent
		}
		try, cancel := c.bound(ctx, askTry)
		a.Reply, err = c.drv.Acquire(try, *req)
		cancel()
		if err == nil && a.State == driver.Granted && !c.now().Before(cfg.deadline(a.sent, cfg.ttl)) {
			err = errLate // asked again, the store counts the lease afresh
		}
		switch {
		case err == nil && a.State == driver.Gone && !a.Broken && last != nil:
			// The id was given up: nobody can tell what became of it before.
			return answer{unanswered: true}, c.because(ctx, fmt.Errorf("%w: %w", ErrUnknown, last))
		case err == nil:
			return a, nil
		}
		if a.Reply = (driver.Reply{}); ticket.Final(err) {
			break
		}
		last = err
		a.unanswered = a.unanswered || !definite(err)
		tired := !a.unanswered && attempt >= unavailableTries || c.now().Sub(a.began) > askBudget
		if tired || !c.sleep(ctx, backoff(attempt)) {
			break
		}
	}
	if a.unanswered {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return a, c.because(ctx, err)
}

// errLate is a grant that cannot be used.
var errLate = errors.New("the answer took longer than the lease lasts")

// because puts before err why ctx or the client ended, if they have.
func (c *Client) because(ctx context.Context, err error) error {
	cause := causeOf(ctx)
	if cause == nil && c.isClosing() {
		cause = ErrClosed
	}
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// causeOf is why ctx ended: an error that matches both its Err and its cause.
func causeOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return errors.Join(err, cause)
}
