package leasehold

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/line"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// request is a lock of any kind, as a caller asks for it.
type request struct {
	c      *Client
	cfg    *config
	key    string
	mode   driver.Mode
	policy driver.Policy
	limit  int
	weight int
	err    error // of a wrong key or option, for the first use
}

// use is the part of a request that differs between the kinds of locks.
type use struct {
	mode    Mode
	readers bool // of a read-write lock
	limit   int  // of a semaphore
}

// lockRequest returns the request for a lock. It has an error if the store can never serve it.
func (c *Client) lockRequest(key string, opts []Option, use use) request {
	r := request{c: c, cfg: &c.cfg, key: key, mode: use.mode, limit: use.limit, weight: 1}
	if err := r.configure(opts, use.readers); err != nil {
		r.err = lockError(key, err)
	}
	return r
}

// configure applies options. Locks without options share the client's configuration.
func (r *request) configure(opts []Option, readers bool) (err error) {
	if err := check.Key(r.key); err != nil {
		return err
	}
	if len(opts) > 0 {
		cfg, err := r.c.cfg.with(opts)
		if err != nil {
			return err
		}
		r.cfg = &cfg
	}
	if r.policy, err = r.cfg.policyFor(readers); err != nil || !r.c.limited {
		return err // most stores are not limited, and building a request takes time
	}
	return driver.Supports(r.c.session.Driver(), r.request())
}

// acquire takes the lock: all methods that lock use it.
func (r *request) acquire(ctx context.Context, wait bool) (*Lease, error) {
	return r.acquireSince(ctx, wait, time.Time{})
}

// acquireSince is acquire for a call that began at the given time, by which it has waited for
// other locks; zero means now. It shares the lease that ctx belongs to, or acquires a new one.
// The context of the result derives from ctx.
func (r *request) acquireSince(ctx context.Context, wait bool, began time.Time) (l *Lease, err error) {
	if r.err != nil {
		return nil, r.err
	}
	defer func() {
		if err != nil {
			r.c.counts.refused.Add(1)
		}
	}()
	if outer, ok := ctx.Value(r).(*Lease); ok && !outer.gone() { // see leaseContext.Value
		if l, err := r.reenter(ctx, outer); !errors.Is(err, errNoReentry) {
			return l, err
		}
	}
	obs := r.observe(ctx, wait)
	l, err = r.acquireNew(obs.context(ctx), wait, began, obs)
	obs.failed(r, err)
	return l, err
}

// acquireNew asks the store for a lease, and waits as long as wait and the options allow.
func (r *request) acquireNew(ctx context.Context, wait bool, began time.Time, obs *observation) (*Lease, error) {
	if err := session.CauseOf(ctx); err != nil {
		return nil, lockError(r.key, err)
	}
	left := r.cfg.maxWait
	if left > 0 && !began.IsZero() {
		left = max(left-r.c.now().Sub(began), 0)
	}
	switch {
	case !wait || r.cfg.maxWait == 0:
		return r.try(ctx, obs)
	case left == 0:
		l, err := r.try(ctx, obs) // it may be free
		if busy := (*HeldError)(nil); errors.As(err, &busy) {
			busy.Cause = errMaxWait
		}
		return l, err
	case left > 0:
		bound, cancel := context.WithTimeoutCause(ctx, left, errMaxWait)
		defer cancel()
		return r.lock(ctx, bound, obs)
	}
	return r.lock(ctx, ctx, obs)
}

// reenter shares the lease that ctx belongs to. It fails if that lease was lost: work under a
// lost lease must not start again under a new one.
func (r *request) reenter(ctx context.Context, outer *Lease) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, lockError(r.key, fmt.Errorf("re-entry: %w", context.Cause(ctx)))
	}
	l := newLease(ctx, outer.hold, new(entry))
	if err := outer.hold.reenter(l.entry, r); err != nil {
		if !errors.Is(err, errNoReentry) {
			err = lockError(r.key, err)
		}
		return nil, err
	}
	if l.Context().Err() == nil {
		return l, nil
	}
	cause := context.Cause(l.context())
	_ = l.Release() // its error is the same cause
	return nil, lockError(r.key, fmt.Errorf("re-entry: %w", cause))
}

// try asks the store once.
func (r *request) try(ctx context.Context, obs *observation) (*Lease, error) {
	if err := r.c.session.Begin(); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.session.Leave()
	if held := r.heldHere(); held != nil {
		return nil, held
	}
	req := r.request()
	a, err := r.c.session.Try(ctx, &r.cfg.Terms, &req)
	return r.answer(ctx, &req, &a, err, obs)
}

// answer returns the outcome of a request without a queue; ctx is the parent of the lease.
func (r *request) answer(ctx context.Context, req *driver.Request, a *session.Answer, err error, obs *observation) (*Lease, error) {
	switch {
	case err != nil:
		return nil, lockError(r.key, err)
	case a.State == driver.Granted:
		return r.lease(ctx, req, a.Grant(), obs)
	case a.State == driver.Busy:
		return nil, heldError(r.key, &a.Reply)
	}
	return nil, lockError(r.key, fmt.Errorf("%w: the store refuses the lease id", ErrUnknown))
}

// lock waits until the lock is granted or bound ends; ctx is the parent of the lease.
func (r *request) lock(ctx, bound context.Context, obs *observation) (*Lease, error) {
	if r.cfg.retry != nil {
		return r.poll(ctx, bound, obs)
	}
	if r.inLine(ctx) {
		return r.lockInLine(ctx, bound, obs)
	}
	req := r.request()
	w, err := r.c.session.NewWaiter(&r.cfg.Terms, &req)
	if err != nil {
		return nil, lockError(r.key, err)
	}
	defer w.Close()

	a, err := w.Queue(bound)
	if err != nil && !a.Unanswered {
		return nil, lockError(r.key, err)
	}
	if err == nil && a.State != driver.Granted {
		obs.waiting(a.Position, ownerOf(&a.Reply))
		r.c.counts.waiting.Add(1)
		defer r.c.counts.waiting.Add(-1)
		err = w.Wait(bound, &a, r.observer(bound))
	}
	if err != nil {
		w.Undo(ctx)
		return nil, r.waitError(err)
	}
	return r.lease(ctx, &req, a.Grant(), obs)
}

// poll asks without a queue, after the delays of WithRetry. The session repeats a request that
// is not answered; these repetitions count as one attempt.
func (r *request) poll(ctx, bound context.Context, obs *observation) (*Lease, error) {
	if err := r.c.session.Begin(); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.session.Leave()
	started := r.c.now()
	for attempt := 1; ; attempt++ {
		req := r.request()
		a, err := r.c.session.Insist(bound, &r.cfg.Terms, &req)
		l, err := r.answer(ctx, &req, &a, err, obs)
		var busy *HeldError
		if !errors.As(err, &busy) {
			return l, err
		}
		answered := r.c.now()
		if n := r.cfg.retry.Attempts; n > 0 && attempt >= n {
			busy.Waited, busy.Cause = r.c.now().Sub(started), fmt.Errorf("%d attempts", n)
			return nil, busy
		}
		obs.waiting(0, busy.Owner)
		if attempt == 1 {
			r.c.counts.waiting.Add(1)
			defer r.c.counts.waiting.Add(-1)
		}
		pause := time.NewTimer(r.cfg.retry.spread(attempt))
		select {
		case <-pause.C:
			if bound.Err() == nil {
				continue
			}
			busy.Cause = session.CauseOf(bound) // bound ended together with the pause
		case <-bound.Done():
			busy.Cause = session.CauseOf(bound)
		case <-r.c.session.Closing():
			busy.Cause = ErrClosed
		}
		pause.Stop()
		now := r.c.now()
		busy.Waited, busy.Remaining = now.Sub(started), max(busy.Remaining-now.Sub(answered), 0)
		return nil, busy
	}
}

// waitError returns the error of a wait: a HeldError if the store had answered, and otherwise
// err with the name of the lock.
func (r *request) waitError(err error) error {
	end := (*session.Unserved)(nil)
	switch {
	case !errors.As(err, &end):
		return lockError(r.key, err)
	case end.Failed != nil:
		return lockError(r.key, fmt.Errorf("gave up after %s: %w", round(end.Waited), session.Because(end.Cause, end.Failed)))
	}
	return &HeldError{
		Key: r.key, Owner: end.Holder.Owner, Remaining: end.Holder.Remaining,
		Position: end.Position, Waited: end.Waited, Cause: end.Cause,
	}
}

func (r *request) lease(ctx context.Context, req *driver.Request, g session.Grant, obs *observation) (*Lease, error) {
	l, err := r.c.lease(ctx, r.cfg, req, g, obs, nil)
	if err != nil {
		r.c.session.Undo(ctx, &r.cfg.Terms, req, g.Unanswered)
		return nil, lockError(r.key, err)
	}
	return l, nil
}

// request returns a request to the store with a new lease id.
func (r *request) request() driver.Request {
	return driver.Request{
		Key: r.key, ID: rand.Text(), Owner: r.cfg.owner(), Reenter: r.cfg.reentrantOwner != "",
		Labels: r.cfg.labels, Since: time.Now(), Mode: r.mode, Policy: r.policy, Ordered: r.cfg.strictOrder,
		Limit: r.limit, Weight: r.weight, TTL: r.cfg.TTL, ConfirmWindow: timing.Window(r.cfg.TTL),
		LockDelay: r.cfg.lockDelay, MinToken: r.cfg.minToken,
	}
}

// inLine reports whether a Lock under ctx waits in a line of the process; see
// [WithLocalHandover].
func (r *request) inLine(ctx context.Context) bool {
	c := r.cfg
	return c.passes > 0 && r.mode == driver.Exclusive && (r.policy == FIFO || r.policy == Barging) &&
		c.reentrantOwner == "" && !c.strictOrder && c.retry == nil && c.MinHold == 0 && !c.NoRenewal &&
		r.c.lines.On() && ctx.Value(observerKey{}) == nil
}

// lineRequest is a request of package line. It is a type of its own because the methods of
// request are also those of [Mutex] and [Semaphore].
type lineRequest struct{ *request }

// Group implements [line.Request].
func (r lineRequest) Group() line.Group {
	c := r.cfg
	return line.Group{
		Key: r.key, Policy: r.policy, TTL: c.TTL, LockDelay: c.lockDelay, ReleaseTimeout: c.ReleaseTimeout,
		MaxOutage: c.MaxOutage, RenewFraction: c.RenewFraction, Drift: c.Drift, MaxAttempts: c.MaxAttempts,
		Passes: c.passes, Name: c.name, Labels: c.labelText, MinToken: c.minToken,
	}
}

// Terms implements [line.Request].
func (r lineRequest) Terms() *session.Terms { return &r.cfg.Terms }

// Request implements [line.Request].
func (r lineRequest) Request() driver.Request { return r.request.request() }

// heldHere refuses a TryLock if a lease of this client may be passed on to calls in a line, or
// if calls wait there.
func (r *request) heldHere() error {
	if !r.inLine(context.Background()) {
		return nil
	}
	h, waiting := r.c.lines.Holder(lineRequest{r}.Group())
	held := &HeldError{Key: r.key, Owner: r.cfg.owner()}
	switch {
	case h != nil && h.Live():
		held.Remaining = max(h.Deadline().Sub(r.c.now()), 0)
	case !waiting:
		return nil
	}
	return held
}

// lockInLine waits in a line of the process until bound ends; ctx is the parent of the lease.
func (r *request) lockInLine(ctx, bound context.Context, obs *observation) (l *Lease, err error) {
	if err := r.c.session.Begin(); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.session.Leave()
	waits := false
	defer func() {
		if waits {
			r.c.counts.waiting.Add(-1)
		}
	}()
	queued := func(position int, owner string) {
		waits = true
		r.c.counts.waiting.Add(1)
		obs.waiting(position, owner)
	}
	granted := func(t *line.Turn, g session.Grant) (_ *session.Hold, err error) {
		if l, err = r.c.lease(ctx, r.cfg, t.Request(), g, obs, t); err != nil {
			return nil, err
		}
		return &l.hold.Hold, nil
	}
	if err := r.c.lines.Join(obs.context(ctx), lineRequest{r}).Wait(bound, queued, granted); err != nil {
		return nil, r.waitError(err)
	}
	return l, nil
}

func (r *request) adopt(ctx context.Context, id string) (*Lease, error) {
	if r.err != nil {
		return nil, r.err
	}
	obs := r.observe(ctx, false)
	l, err := r.takeOver(obs.context(ctx), id, obs)
	if obs.failed(r, err); err != nil {
		r.c.counts.refused.Add(1)
		return nil, lockError(r.key, fmt.Errorf("adopt %q: %w", id, err))
	}
	return l, nil
}

// takeOver renews the lease of id, and makes a hold of it.
func (r *request) takeOver(ctx context.Context, id string, obs *observation) (*Lease, error) {
	if err := check.ID(id); err != nil {
		return nil, err
	}
	if err := session.CauseOf(ctx); err != nil {
		return nil, err
	}
	if err := r.c.session.Begin(); err != nil {
		return nil, err
	}
	defer r.c.session.Leave()
	if err := r.c.session.NotHeld(r.key, id); err != nil {
		return nil, err
	}
	began := r.c.now()
	seen, err := r.findLease(ctx, id, began)
	if err != nil {
		return nil, err
	}
	cfg, token := r.cfg.ownedBy(seen.Owner), seen.Token
	obs.ownedBy(cfg)
	g, err := r.c.session.Confirm(ctx, &cfg.Terms, driver.Ref{Key: r.key, ID: id, TTL: r.cfg.TTL, Token: token}, began)
	if err != nil {
		return nil, err
	}
	g.Unanswered = true // requests of the process that took the lock may still arrive
	if g.Token == 0 {
		g.Token = token
	}
	req := r.request()
	req.ID = id
	// On an error the client has the lease already, or the lease ends unless it is renewed.
	return r.c.lease(ctx, cfg, &req, g, obs, nil)
}

// findLease looks for the lease in the store, and refuses one of another kind. It returns the
// zero Holder if the store cannot be inspected or does not have the lease.
func (r *request) findLease(ctx context.Context, id string, began time.Time) (seen driver.Holder, err error) {
	store, ok := driver.As[driver.Inspector](r.c.session.Driver())
	if !ok {
		return seen, nil
	}
	snap, err := r.c.session.Inspect(ctx, &r.cfg.Terms, store, r.key, began)
	switch {
	case timing.Final(err):
		return seen, session.CauseOf(ctx) // inspection is not allowed; the renewal decides
	case err != nil:
		return seen, err
	}
	i := slices.IndexFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id })
	switch {
	case i < 0 && slices.ContainsFunc(snap.Waiters, func(w driver.Waiter) bool { return w.ID == id }):
		return seen, fmt.Errorf("waits for the lock: %w", ErrNotHeld)
	case i < 0 && len(snap.Holders) > 0:
		return seen, fmt.Errorf("held by another lease: %w", ErrNotHeld)
	case i < 0:
		return seen, nil // the renewal returns the reason
	}
	h := &snap.Holders[i]
	if h.Foreign || h.Mode != r.mode || h.Mode == driver.Shared && snap.Limit != r.limit {
		return seen, fmt.Errorf("a lease of another kind: %w", ErrMismatch)
	}
	return *h, nil
}
