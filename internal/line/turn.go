package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Turn is a lease in the store for as long as the process passes it on. The methods of a nil
// Turn, which stands for a lease that is not passed on, have no effect.
//
// Its tokens are reserved by renewals that raise the lease's token: the tokens between the
// last one given and the last one that the store has confirmed are given to no other lease,
// also after this process has died.
type Turn struct {
	all   *Lines
	line  *line
	terms *session.Terms
	req   driver.Request // that the lease was granted to
	began time.Time

	// These are guarded by the mutex of the lines.
	grant       session.Grant // as the store has confirmed it last
	first, last int64         // tokens given
	end         int64         // the last token that is reserved
	passes      int           // left, as far as is known
	hold        *session.Hold // of the current lease; nil until it is known
	uncontended bool          // the store answered that no other process waits
	dry         bool          // the store raises no tokens
	reserving   bool          // a renewal is under way
	parked      bool          // the lease has no holder until that renewal is answered
	kept        bool          // its holder has to release it in the store
	over        bool          // it has ended, or must not be passed on
	cause       error         // of its loss
}

// Request returns the request that the lease was granted to.
func (t *Turn) Request() *driver.Request { return &t.req }

// ask sends a request to the store for the line, until ctx ends, and begins a turn. The caller
// does not hold the mutex.
func (l *line) ask(ctx context.Context, r Request) {
	began := l.all.session.Now()
	t, err := l.fetch(ctx, r)
	l.all.mu.Lock()
	l.asking = nil
	switch now := l.all.session.Now(); {
	case err == nil:
		l.turn = t
		if l.wait.Len() == 0 || !l.all.session.Usable(t.terms, &t.grant, now) {
			t.over = true
			l.all.mu.Unlock()
			t.giveBack()
			return
		}
		t.give(t.first)
		l.queuedSince()
		t.refill(now)
	case ctx.Err() != nil || errors.Is(err, errAgain):
		l.next() // for calls that have joined since
	default:
		l.fail(err, began)
		l.next()
	}
	l.all.mu.Unlock()
}

// fail ends the wait of the calls that had joined when the request began. For calls that
// joined later, the store is asked again if it did not answer: each call waits for a store
// for the same time.
func (l *line) fail(err error, began time.Time) {
	unanswered := errors.Is(err, session.ErrUnknown) || errors.Is(err, driver.ErrUnavailable)
	again := unanswered && !timing.Permanent(err) && !l.all.session.IsClosing()
	for e := l.wait.Front(); e != nil; {
		c, next := e.Value.(*Call), e.Next()
		if !again || !c.began.After(began) {
			c.err = err
			c.wake()
			l.remove(c)
		}
		e = next
	}
}

// errAgain is the error of a lease that was lost before a call had it.
var errAgain = errors.New("lost again")

// fetch waits for a lease in the store. The caller does not hold the mutex.
func (l *line) fetch(ctx context.Context, r Request) (*Turn, error) {
	req, terms := r.Request(), r.Terms()
	w, err := l.all.session.NewWaiter(terms, &req)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	a, err := w.Queue(ctx)
	if err != nil && !a.Unanswered {
		return nil, err
	}
	if err == nil && a.State != driver.Granted {
		l.queued(w, &a)
		err = w.Wait(ctx, &a, nil)
		l.dequeued()
	}
	if err != nil {
		w.Undo(ctx)
		return nil, err
	}
	g := a.Grant()
	t := &Turn{
		all: l.all, line: l, terms: terms, req: req, began: l.all.session.Now(),
		grant: g, first: g.Token, last: g.Token, end: g.Token, passes: l.group.Passes, uncontended: g.Uncontended,
	}
	if g.Token == 0 {
		t.dry = true
		l.all.off.Store(true)
	}
	if g.Window > 0 && !t.dry {
		err = t.confirm(ctx)
	}
	return t, err
}

// confirm confirms a lease that the store has handed over, and reserves tokens for the line
// with the same request. No other call has the turn yet, and the caller does not hold the
// mutex.
func (t *Turn) confirm(ctx context.Context) error {
	t.all.mu.Lock()
	more := min(t.line.wait.Len()-1, t.passes)
	t.all.mu.Unlock()
	if more <= 0 {
		return nil // the first renewal confirms it
	}
	s := t.all.session
	ref, began := t.ref(t.last+int64(more)), s.Now()
	g, err := s.Confirm(ctx, t.terms, ref, began)
	for err != nil && t.retry(ctx, err, began) {
		g, err = s.Confirm(ctx, t.terms, ref, s.Now())
	}
	switch {
	case err == nil:
		g.Unanswered = t.grant.Unanswered
		t.confirmed(ref.Token, &g)
		return nil
	case errors.Is(err, session.ErrNotHeld):
		err = errAgain
	case errors.Is(err, driver.ErrUnavailable): // the store has handed the lease over before
		err = fmt.Errorf("%w: %w", session.ErrUnknown, timing.Uncertain(err))
	}
	s.Undo(ctx, t.terms, &t.req, true)
	return err
}

// retry reports whether confirm asks the store again after err. If the lease is over when the
// store is back, the store answers that it is gone, and the line asks for a new lease.
func (t *Turn) retry(ctx context.Context, err error, began time.Time) bool {
	s := t.all.session
	if errors.Is(err, session.ErrNotHeld) || timing.Permanent(err) || ctx.Err() != nil || s.IsClosing() {
		return false
	}
	return t.terms.MaxOutage < 0 || s.Now().Sub(began) < t.terms.MaxOutage
}

// ref names the lease for a renewal that reserves tokens up to end.
func (t *Turn) ref(end int64) driver.Ref {
	return driver.Ref{Key: t.req.Key, ID: t.req.ID, TTL: t.req.TTL, Token: end}
}

// confirmed records a renewal that was sent to reserve the tokens up to end.
func (t *Turn) confirmed(end int64, g *session.Grant) {
	if g.Origin.After(t.grant.Origin) {
		t.grant.Origin = g.Origin
	}
	t.grant.Window, t.grant.Uncontended, t.uncontended = 0, g.Uncontended, g.Uncontended
	if t.dry = g.Token < end; !t.dry {
		t.end = end
	}
	if t.uncontended {
		t.passes = t.line.group.Passes
	}
}

// deadline returns the earliest end of the lease.
func (t *Turn) deadline() time.Time {
	ttl := t.terms.TTL
	if t.grant.Window > 0 {
		ttl = t.grant.Window
	}
	return t.grant.Origin.Add(t.terms.Life(ttl))
}

const (
	// confirmEvery bounds for how long a lease is passed on without an answer of the store: a
	// store that lost its data may have granted the lock to another process, with a smaller
	// token.
	confirmEvery = time.Second
	// maxReserved bounds how many tokens one renewal reserves.
	maxReserved = 10_000
)

// ready returns how often the lease can be passed on without a request.
func (t *Turn) ready() int { return min(int(t.end-t.last), t.passes) }

// refill starts a renewal if tokens will soon run out or the lease has to be renewed. The
// renewal also asks whether other processes wait. refill reports whether a renewal is under
// way.
//
// Tokens that are reserved and not used must not run ahead of the store's clock in
// microseconds, at which a lost counter starts again. So no more are reserved than calls
// wait, or than microseconds have passed since the turn began.
func (t *Turn) refill(now time.Time) bool { return t.renew(now, false) }

// renew is refill. With must, it renews the lease also if that is not due.
func (t *Turn) renew(now time.Time, must bool) bool {
	want := min(t.line.wait.Len(), t.line.group.Passes)
	if t.reserving {
		return true
	}
	if want == 0 || t.over || t.dry {
		return false
	}
	tokens := int(t.end - t.last)
	due := now.After(t.grant.Origin.Add(time.Duration(float64(t.terms.TTL) * t.terms.RenewFraction)))
	useless := t.passes <= tokens && !t.uncontended // the turn ends before they are used
	if !must && !due && (useless || 2*t.ready() >= want) {
		return false
	}
	most := t.passes
	if t.uncontended {
		most = t.line.group.Passes
	}
	passed := min(t.first+now.Sub(t.began).Microseconds()-t.last, maxReserved)
	want = max(min(max(want, int(passed)), most), tokens)
	ref := t.ref(t.last + int64(want))
	limit := min(timing.RenewalTry(t.deadline().Sub(now)), t.terms.ReleaseTimeout)
	if must {
		limit = min(limit, confirmEvery) // until then the lock has no holder
	}
	t.reserving = true
	t.all.session.Background(func() {
		g, err := t.all.session.Prolong(context.Background(), t.terms, ref, limit)
		t.renewed(ref.Token, &g, err)
	})
	return true
}

// renewed records the outcome of a renewal that was sent to reserve the tokens up to end, and
// passes the lease on if that had to wait for it. The caller does not hold the mutex.
func (t *Turn) renewed(end int64, g *session.Grant, err error) {
	t.all.mu.Lock()
	t.reserving = false
	switch {
	case t.over:
		t.all.mu.Unlock()
		return
	case errors.Is(err, session.ErrLost):
		t.lose(err)
		t.all.mu.Unlock()
		session.EndLocal(t.req.Key, t.req.ID, err)
		return
	case err == nil:
		t.confirmed(end, g)
	}
	if t.parked {
		t.parked = false
		now := t.all.session.Now()
		if !t.usable(now) || t.ready() <= 0 {
			t.over = true
			t.all.mu.Unlock()
			t.giveBack()
			return
		}
		t.passOn(now)
	}
	t.all.mu.Unlock()
}

// usable reports whether the lease may be passed on and a call waits for it.
func (t *Turn) usable(now time.Time) bool {
	s := t.all.session
	return !t.over && !t.kept && t.line.wait.Len() > 0 && !s.IsClosing() && s.Usable(t.terms, &t.grant, now)
}

// Pass passes the lease, with the remaining grant g, to the next call in the line, and reports
// whether it did. Otherwise the caller releases the lease in the store and then calls
// [Turn.Left]. The lease is not passed on if may is false.
func (t *Turn) Pass(g session.Grant, may bool) bool {
	if t == nil {
		return false
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.hold = nil
	if g.Origin.After(t.grant.Origin) || t.grant.Window > 0 {
		t.grant.Origin, t.grant.Window = g.Origin, 0
	}
	now := t.all.session.Now()
	if !may || !t.usable(now) {
		t.over = true
		return false
	}
	confirmed := now.Sub(t.grant.Origin) < confirmEvery
	if t.ready() > 0 && confirmed {
		t.passOn(now)
		return true
	}
	// The store gives more tokens unless other processes wait.
	if t.passes == 0 && !t.uncontended && !t.reserving || !t.renew(now, !confirmed) {
		t.over = true
		return false
	}
	t.parked = true
	return true
}

// passOn gives the lease to the next call, with the next token.
func (t *Turn) passOn(now time.Time) {
	t.passes--
	t.give(t.last + 1)
	t.refill(now)
}

// give gives the lease to the first call, with a token.
func (t *Turn) give(token int64) {
	t.last = token
	c := t.line.wait.Front().Value.(*Call)
	t.line.remove(c)
	c.turn, c.grant = t, t.grant
	c.grant.Token = token
	c.wake()
}

// begun records the hold of the current lease. The caller does not hold the mutex.
func (t *Turn) begun(h *session.Hold) {
	t.all.mu.Lock()
	cause := t.cause
	if t.last == h.Token() {
		t.hold = h
	}
	t.all.mu.Unlock()
	if cause != nil {
		session.EndLocal(t.req.Key, t.req.ID, cause)
	}
}

// refuse passes on a lease, with the remaining grant g, that its call does not use. The caller
// does not hold the mutex.
func (t *Turn) refuse(g session.Grant) {
	if !t.Pass(g, g.Window == 0) { // a lease with a window has to be confirmed first
		t.giveBack()
	}
}

// giveBack releases the lease in the background. The caller does not hold the mutex.
func (t *Turn) giveBack() {
	a := session.Abandoned{Ref: driver.Ref{Key: t.req.Key, ID: t.req.ID}, Life: t.req.TTL, Tried: t.Left}
	if t.grant.Unanswered {
		a.Ref.RejectIDFor = timing.ForbidFor
	}
	t.all.session.GiveBack(context.Background(), t.terms, &a)
}

// Waiting reports whether a call waits in the line of the turn. A nil turn has none.
func (t *Turn) Waiting() bool {
	if t == nil {
		return false
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	return t.line.wait.Len() > 0
}

// Left ends a turn that is over, when its lease has been released: the line asks the store
// again.
func (t *Turn) Left() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.over {
		t.finish()
	}
}

// Abandon ends a turn and leaves its lease in the store.
func (t *Turn) Abandon() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.over = true
	t.finish()
}

// Lost ends a turn because its lease was lost by cause.
func (t *Turn) Lost(cause error) {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.lose(cause)
}

// lose is Lost.
func (t *Turn) lose(cause error) {
	t.over, t.parked, t.cause = true, false, cause
	t.finish()
}

// finish makes the line ask the store for its next turn.
func (t *Turn) finish() {
	if l := t.line; l.turn == t {
		l.turn = nil
		l.next()
	}
}

// Keep makes the holder release its lease in the store instead of passing it on. It reports
// false if h has passed the lease on before.
func (t *Turn) Keep(h *session.Hold) bool {
	if t == nil {
		return true // such a lease is always released in the store
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.hold != h {
		return false
	}
	t.kept = true
	return true
}
