package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// turn is a lease in the store for as long as the process passes it on. It is guarded
// by the mutex of the client's lines, which the callers of its methods hold unless they
// say otherwise.
//
// Its tokens are reserved by renewals that raise the lease's token: what lies between
// the token that was given last and the one that the store has confirmed is given to
// nobody else, now or later, also if the process dies.
type turn struct {
	line  *line
	cfg   *config
	req   driver.Request // that the lease was granted to
	began time.Time

	grant       session.Grant // as the store has confirmed it last
	first, last int64         // tokens given
	end         int64         // the last token that is reserved
	passes      int           // how often it may be passed on, as far as is known
	hold        *hold         // who has it; nil until that is known
	uncontended bool          // nobody else waited when the store answered last
	dry         bool          // the store raises no tokens
	reserving   bool          // a renewal is under way
	parked      bool          // nobody has it until that is answered
	kept        bool          // its holder gives it back to the store
	over        bool          // it has ended, or nobody is to have it
	cause       error         // how it was lost
}

// next has the store asked for the line, unless it is empty: then it is forgotten.
func (l *line) next() {
	if l.wait.Len() == 0 {
		delete(l.c.lines.all, l.alike)
		return
	}
	s := l.wait.Front().Value.(*stander)
	// Its values only: whoever is the first may leave.
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	l.asking = &asking{cancel: cancel}
	l.c.session.Background(func() {
		defer cancel()
		l.ask(ctx, s.r)
	})
}

// ask asks the store for the line as r would, until ctx ends, and begins a turn. The
// caller does not hold the mutex.
func (l *line) ask(ctx context.Context, r *request) {
	began := l.c.now()
	t, err := l.fetch(ctx, r)
	mu := &l.c.lines.mu
	mu.Lock()
	l.asking = nil
	switch {
	case err == nil:
		l.turn = t
		if l.wait.Len() > 0 && l.c.session.Usable(&t.cfg.Terms, &t.grant) {
			t.give(t.first)
			l.tellNew()
			t.refill()
			break
		}
		t.over = true
		mu.Unlock()
		t.giveBack()
		return
	case ctx.Err() != nil || errors.Is(err, errAgain):
		l.next() // whoever has come since
	default:
		l.fail(err, began)
		l.next()
	}
	mu.Unlock()
}

// tellNew tells the calls that joined while the store was asked that they have to wait.
func (l *line) tellNew() {
	position := l.wait.Len()
	for e := l.wait.Back(); e != nil && !e.Value.(*stander).told; e = e.Prev() {
		e.Value.(*stander).tell(position, l.alike.name)
		position--
	}
}

// fail ends the wait of those for whom the store was asked since began. Those who came
// later have the same patience with a store that is away, which therefore is asked again.
func (l *line) fail(err error, began time.Time) {
	away := (errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable)) && !timing.Permanent(err) && !l.c.session.IsClosing()
	for e := l.wait.Front(); e != nil; {
		s, next := e.Value.(*stander), e.Next()
		if !away || !s.began.After(began) {
			s.err = err
			s.wake()
			l.wait.Remove(e)
			l.ranks.add(s.number, -1)
		}
		e = next
	}
}

// errAgain: the lease was lost before anybody had it.
var errAgain = errors.New("lost again")

// fetch waits for a lease in the store. The caller does not hold the mutex.
func (l *line) fetch(ctx context.Context, r *request) (*turn, error) {
	req := r.request()
	w, err := l.c.session.NewWaiter(&r.cfg.Terms, &req)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	a, err := w.Queue(ctx)
	if err != nil && !a.Unanswered {
		return nil, err
	}
	if err == nil && a.State != driver.Granted {
		l.waits(w, &a)
		err = w.Wait(ctx, &a, nil)
		l.waited()
	}
	if err != nil {
		w.Undo(ctx)
		return nil, err
	}
	g := a.Grant()
	t := &turn{line: l, cfg: r.cfg, req: req, began: l.c.now(), grant: g, first: g.Token, last: g.Token, end: g.Token, passes: r.cfg.passes, uncontended: g.Uncontended}
	if g.Token == 0 {
		t.dry = true
		l.c.lines.none.Store(true)
	}
	if g.Window > 0 && !t.dry {
		err = t.confirm(ctx)
	}
	return t, err
}

// waits tells those in the line that they have to wait, as a says of w, which does so
// for them. The caller does not hold the mutex.
func (l *line) waits(w *session.Waiter, a *session.Answer) {
	l.c.lines.mu.Lock()
	defer l.c.lines.mu.Unlock()
	l.asking.waiter, l.asking.position, l.asking.owner = w, a.Position, ownerOf(&a.Reply)
	position := a.Position
	for e := l.wait.Front(); e != nil; e = e.Next() {
		e.Value.(*stander).tell(position, l.asking.owner)
		position++
	}
}

// waited ends that: w knows nothing any more. The caller does not hold the mutex.
func (l *line) waited() {
	l.c.lines.mu.Lock()
	defer l.c.lines.mu.Unlock()
	l.asking.waiter = nil
}

// confirm confirms a lease that the store has handed over, and reserves tokens for the
// line in the same request. Nobody has the turn yet, nor the mutex.
func (t *turn) confirm(ctx context.Context) error {
	s, terms := t.line.c.session, &t.cfg.Terms
	t.line.c.lines.mu.Lock()
	more := min(t.line.wait.Len()-1, t.passes)
	t.line.c.lines.mu.Unlock()
	if more <= 0 {
		return nil // its first renewal confirms it
	}
	ref, began := t.ref(t.last+int64(more)), s.Now()
	g, err := s.Confirm(ctx, terms, ref, began)
	for err != nil && t.patient(ctx, err, began) {
		g, err = s.Confirm(ctx, terms, ref, s.Now())
	}
	if err != nil {
		s.Undo(ctx, terms, &t.req, true)
		if errors.Is(err, ErrNotHeld) {
			return errAgain
		}
		if errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrUnknown, timing.Uncertain(err)) // it has been handed over
		}
		return err
	}
	g.Unanswered = t.grant.Unanswered
	t.confirmed(ref.Token, &g)
	return nil
}

// patient reports whether a store is asked once more that has failed with err since
// began. If the lease is over when it comes back, it says so, and the line asks again.
func (t *turn) patient(ctx context.Context, err error, began time.Time) bool {
	s := t.line.c.session
	if errors.Is(err, ErrNotHeld) || timing.Permanent(err) || ctx.Err() != nil || s.IsClosing() {
		return false
	}
	return t.cfg.MaxOutage < 0 || s.Now().Sub(began) < t.cfg.MaxOutage
}

// ref names the lease, for a renewal that reserves tokens up to end.
func (t *turn) ref(end int64) driver.Ref {
	return driver.Ref{Key: t.req.Key, ID: t.req.ID, TTL: t.req.TTL, Token: end}
}

// confirmed takes note of a renewal that was to reserve the tokens up to end.
func (t *turn) confirmed(end int64, g *session.Grant) {
	if g.Origin.After(t.grant.Origin) {
		t.grant.Origin = g.Origin
	}
	t.grant.Window, t.grant.Uncontended, t.uncontended = 0, g.Uncontended, g.Uncontended
	if t.dry = g.Token < end; !t.dry {
		t.end = end
	}
	if t.uncontended {
		t.passes = t.cfg.passes
	}
}

// deadline is when the lease is over, at the earliest.
func (t *turn) deadline() time.Time {
	ttl := t.cfg.TTL
	if t.grant.Window > 0 {
		ttl = t.grant.Window
	}
	return t.grant.Origin.Add(t.cfg.Life(ttl))
}

// confirmEvery is how long a lease is passed on without an answer of the store: a store that
// lost its data may have given the lock and a smaller token to another process.
const confirmEvery = time.Second

// ready is how often the turn may be passed on without asking the store.
func (t *turn) ready() int { return min(int(t.end-t.last), t.passes) }

// refill has more tokens reserved before they run out, the lease renewed, and the store
// asked whether others wait. It reports whether that is under way.
//
// Tokens that are reserved and not used must not run ahead of the store's clock in
// microseconds, with which a counter that is lost begins anew. So there are at most as
// many as stand in the line, or as microseconds have passed since the turn began.
func (t *turn) refill() bool { return t.renew(false) }

// renew is refill. If must is true, it renews the lease also if nothing is due.
func (t *turn) renew(must bool) bool {
	want := min(t.line.wait.Len(), t.cfg.passes)
	if t.reserving {
		return true
	}
	if want == 0 || t.over || t.dry {
		return false
	}
	now := t.line.c.now()
	tokens := int(t.end - t.last)
	due := now.After(t.grant.Origin.Add(time.Duration(float64(t.cfg.TTL) * t.cfg.RenewFraction)))
	useless := t.passes <= tokens && !t.uncontended // others have their turn then
	if !must && !due && (useless || 2*t.ready() >= want) {
		return false
	}
	most := t.passes
	if t.uncontended {
		most = t.cfg.passes
	}
	passed := min(t.first+now.Sub(t.began).Microseconds()-t.last, MaxLocalHandover)
	want = max(min(max(want, int(passed)), most), tokens)
	ref := t.ref(t.last + int64(want))
	limit := min(timing.RenewalTry(t.deadline().Sub(now)), t.cfg.ReleaseTimeout)
	if must {
		limit = min(limit, confirmEvery) // meanwhile nobody has the lock
	}
	t.reserving = true
	t.line.c.session.Background(func() {
		g, err := t.line.c.session.Prolong(context.Background(), &t.cfg.Terms, ref, limit)
		t.refilled(ref.Token, &g, err)
	})
	return true
}

// refilled is the outcome of a refill. The caller does not hold the mutex.
func (t *turn) refilled(end int64, g *session.Grant, err error) {
	mu := &t.line.c.lines.mu
	mu.Lock()
	t.reserving = false
	switch {
	case t.over:
		mu.Unlock()
		return
	case errors.Is(err, ErrLost):
		t.fail(err)
		mu.Unlock()
		session.EndLocal(t.req.Key, t.req.ID, err)
		return
	case err == nil:
		t.confirmed(end, g)
	}
	if !t.parked {
		mu.Unlock()
		return
	}
	t.parked = false
	if t.mayPass() && t.ready() > 0 {
		t.passOn()
		mu.Unlock()
		return
	}
	t.over = true
	mu.Unlock()
	t.giveBack()
}

// mayPass reports whether there is somebody to whom the lease may be passed.
func (t *turn) mayPass() bool {
	s := t.line.c.session
	return !t.over && !t.kept && t.line.wait.Len() > 0 && !s.IsClosing() && s.Usable(&t.cfg.Terms, &t.grant)
}

// pass gives the lease, of which g is left, to the next in the line, if that can be;
// else the caller, who does not hold the mutex, releases it in the store and calls left.
func (t *turn) pass(g session.Grant, can bool) bool {
	t.line.c.lines.mu.Lock()
	defer t.line.c.lines.mu.Unlock()
	t.hold = nil
	if g.Origin.After(t.grant.Origin) || t.grant.Window > 0 {
		t.grant.Origin, t.grant.Window = g.Origin, 0
	}
	if !can || !t.mayPass() {
		t.over = true
		return false
	}
	confirmed := t.line.c.now().Sub(t.grant.Origin) < confirmEvery
	if t.ready() > 0 && confirmed {
		t.passOn()
		return true
	}
	// Unless others wait, the store gives more tokens.
	if t.passes == 0 && !t.uncontended && !t.reserving || !t.renew(!confirmed) {
		t.over = true
		return false
	}
	t.parked = true
	return true
}

// passOn gives the next in the line the lease with the next token.
func (t *turn) passOn() {
	t.passes--
	t.give(t.last + 1)
	t.refill()
}

// give gives the first in the line the lease with a token.
func (t *turn) give(token int64) {
	t.last = token
	s := t.line.wait.Remove(t.line.wait.Front()).(*stander)
	t.line.ranks.add(s.number, -1)
	s.turn, s.grant = t, t.grant
	s.grant.Token = token
	s.wake()
}

// begun takes note of who has the lease. The caller does not hold the mutex.
func (t *turn) begun(h *hold) {
	mu := &t.line.c.lines.mu
	mu.Lock()
	lost := t.cause
	if t.last == h.Token() {
		t.hold = h
	}
	mu.Unlock()
	if lost != nil {
		session.EndLocal(t.req.Key, t.req.ID, lost)
	}
}

// refuse gives on a lease that nobody works under, of which g is left. The caller does
// not hold the mutex.
func (t *turn) refuse(g session.Grant) {
	if !t.pass(g, g.Window == 0) { // else it has to be confirmed first
		t.giveBack()
	}
}

// giveBack releases in the background a lease that is passed on no more. The caller
// does not hold the mutex.
func (t *turn) giveBack() {
	a := session.Abandoned{Ref: driver.Ref{Key: t.req.Key, ID: t.req.ID}, Life: t.req.TTL, Tried: t.left}
	if t.grant.Unanswered {
		a.Ref.RejectIDFor = timing.ForbidFor
	}
	t.line.c.session.GiveBack(context.Background(), &t.cfg.Terms, &a)
}

// left has the line ask the store again once the lease of a turn that is over has been
// released, or left to others. The caller does not hold the mutex. A nil turn is that of
// a lease that is not passed on.
func (t *turn) left() {
	if t == nil {
		return
	}
	t.line.c.lines.mu.Lock()
	defer t.line.c.lines.mu.Unlock()
	if l := t.line; l.turn == t && t.over {
		l.turn = nil
		l.next()
	}
}

// keep has the lease released in the store when h ends. It reports whether that is so: not
// if h has passed it on. A lease that is not passed on is always released there.
func (t *turn) keep(h *hold) bool {
	if t == nil {
		return true
	}
	t.line.c.lines.mu.Lock()
	defer t.line.c.lines.mu.Unlock()
	if t.hold != h {
		return false
	}
	t.kept = true
	return true
}

// abandon ends a turn whose lease was left in the store; see left.
func (t *turn) abandon() {
	if t == nil {
		return
	}
	t.line.c.lines.mu.Lock()
	t.over = true
	t.line.c.lines.mu.Unlock()
	t.left()
}

// lost ends a turn whose lease was lost because of cause; see left.
func (t *turn) lost(cause error) {
	if t == nil {
		return
	}
	t.line.c.lines.mu.Lock()
	defer t.line.c.lines.mu.Unlock()
	t.fail(cause)
}

// fail has the line ask the store again at once: the lease is not there any more.
func (t *turn) fail(cause error) {
	t.over, t.parked, t.cause = true, false, cause
	if l := t.line; l.turn == t {
		l.turn = nil
		l.next()
	}
}
