package session

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Events receives the events of a Hold. Except in Began and Terms, it may call the Hold's
// methods.
type Events interface {
	// Terms returns the terms of the lease, which never change.
	Terms() *Terms
	// Began is called first. handed is when the store handed the lock over, or zero
	// without a hand-over.
	Began(handed time.Time)
	// Renewed is called with the outcome of a renewal that was sent at sent.
	Renewed(sent time.Time, reply *driver.Reply, err error)
	// Ended is called once, when the lease ends, by the goroutine that noticed the end.
	Ended(cause error)
	// Due is called when a renewal is due, and at the deadline. It calls WindDown if the
	// contexts of the work have ended.
	Due()
	// CutOff is called once, when the lease reaches MaxHold. It ends the contexts of the work.
	CutOff()
	// GiveBack releases, within limit, a lease that ended because the session was closed.
	// It returns the error of Release.
	GiveBack(cause error, limit time.Duration) error
}

// Hold is this process's view of one lease in the store.
//
// The keeper decides when to renew it, through Ask and Answer. Live ends it when its
// deadline has passed.
type Hold struct {
	s       *Session
	events  Events
	key, id string
	token   int64
	granted clock.Instant
	task    task
	alarm   int32 // index in the expiry's heap

	mu sync.Mutex
	// mode is the mode that the caller may rely on: shared from the moment a downgrade
	// is sent, and exclusive again only if the store certainly did not downgrade.
	mode     driver.Mode
	reader   bool  // the lease is shared in the store
	lowering uint8 // downgrades under way
	unsure   bool  // a downgrade was not answered
	// unanswered reports whether requests with this id may still reach the store.
	unanswered  bool
	given       bool // a caller has taken over the release
	uncontended bool // no other holder or waiter, by the last answer
	window      bool // handed over and not confirmed
	winding     bool // the renewal that is due is the last; see WindDown
	ttl         time.Duration
	asked       time.Duration // TTL of the last renewal request, at least ttl
	deadline    clock.Instant
	ended       error      // why the lease ended; nil while it is live
	rareState   *rareState // nil while unused
}

// rareState holds state that most leases never need: that of failed renewals, of Extend, of
// MaxHold, and of semaphores.
type rareState struct {
	cutoff   *time.Timer // fires at MaxHold
	failed   error       // error of the last renewal, until one succeeds
	attempts int         // failures in a row
	extends  []extension
	flying   []extension   // the extensions that the renewal under way answers
	taken    clock.Instant // until when an unanswered renewal may keep the lease in the store
	places   driver.Places
	wanted   chan struct{} // closed once a waiter is queued; nil if no caller has asked
	eager    bool          // wanted is not closed yet, but will be
}

// needRareState returns h.rareState, allocating it if necessary. The caller holds mu.
func (h *Hold) needRareState() *rareState {
	if h.rareState == nil {
		h.rareState = new(rareState)
	}
	return h.rareState
}

// Causes of a loss other than a break.
var (
	ErrExpired = fmt.Errorf("%w: not renewed before its deadline", ErrLost)
	ErrGone    = fmt.Errorf("%w: the store no longer has it", ErrLost)

	errOverrun = fmt.Errorf("%w: its context had ended, and it was not released within its TTL", ErrExpired)
)

// Hold initializes h, which must be zero, as the lease that was granted to req, and
// starts its clocks. The error matches ErrClosed, or ErrMismatch if the session has a
// lease with this key and id.
func (s *Session) Hold(h *Hold, req *driver.Request, g Grant, e Events) error {
	t := e.Terms()
	h.s, h.events, h.key, h.id, h.token = s, e, req.Key, req.ID, g.Token
	h.mode, h.reader = req.Mode, req.Mode == driver.Shared
	h.unanswered, h.uncontended, h.ttl, h.granted = g.Unanswered, g.Uncontended, t.TTL, s.instant(s.Now())
	ttl := t.TTL
	if h.window = g.Window > 0; h.window {
		ttl = g.Window
	}
	h.deadline = s.instant(t.deadline(g.Origin, ttl))
	h.task = task{of: h}
	if g.Places != "" {
		h.needRareState().places = g.Places
	}
	if err := h.keep(g.handed()); err != nil {
		return err
	}
	h.start(g)
	return nil
}

// keep registers the lease and calls Began. It holds mu, so the lease cannot end before
// Began returns.
func (h *Hold) keep(handed time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.s.register(h); err != nil {
		return err
	}
	began := false
	defer func() {
		if !began { // the observer panicked, so no caller will release this lease
			h.s.forget(h)
		}
	}()
	h.events.Began(handed)
	began = true
	return nil
}

// start sets the timers. A hand-over is confirmed by the first renewal, which is sent at
// once: until it is answered, an outage as long as the window loses the lease.
func (h *Hold) start(g Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return
	}
	h.s.expiry.set(h, h.deadline)
	if h.terms().MaxHold > 0 {
		h.needRareState().cutoff = time.AfterFunc(h.terms().MaxHold, h.cutOff)
	}
	switch {
	case h.window:
		h.s.keeper.Add(&h.task, h.s.Now())
	case !h.terms().NoRenewal:
		h.s.keeper.Add(&h.task, g.Origin.Add(h.terms().pause(h.ttl)))
	}
}

func (h *Hold) terms() *Terms { return h.events.Terms() }

// Key returns the key of the lock.
func (h *Hold) Key() string { return h.key }

// ID returns the lease's id in the store.
func (h *Hold) ID() string { return h.id }

// Token returns the fencing token.
func (h *Hold) Token() int64 { return h.token }

// Places returns the numbers of the places of a semaphore.
func (h *Hold) Places() driver.Places {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rareState == nil {
		return ""
	}
	return h.rareState.places
}

// wantedEvery is how often a lease is renewed, at least, for a caller of Wanted.
const wantedEvery = time.Second

// Wanted returns a channel that is closed once a renewal shows a waiter. From the first call on
// the lease is renewed once a second, until there is one. A lease without renewal has a channel
// that is never closed.
func (h *Hold) Wanted() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.needRareState()
	if a.wanted == nil {
		a.wanted, a.eager = make(chan struct{}), !h.terms().NoRenewal
		h.s.keeper.Press(&h.task, a.eager)
		h.s.keeper.Hurry(&h.task, h.s.Now())
	}
	return a.wanted
}

// eager reports whether a caller of Wanted has not learned of a waiter yet. The caller holds mu.
func (h *Hold) eager() bool { return h.rareState != nil && h.rareState.eager }

// Want closes the channel of Wanted.
func (h *Hold) Want() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.eager() {
		h.rareState.eager = false
		h.s.keeper.Press(&h.task, false)
		close(h.rareState.wanted)
	}
}

// Granted returns when the lease was granted.
func (h *Hold) Granted() time.Time { return h.s.time(h.granted) }

// Held returns the time since the lease was granted.
func (h *Hold) Held() time.Duration { return h.s.Now().Sub(h.Granted()) }

// Deadline returns when the lease ends unless it is renewed.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s.time(h.deadline)
}

// TTL returns the TTL that the store last confirmed.
func (h *Hold) TTL() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ttl
}

// Failing reports whether the last renewal failed.
func (h *Hold) Failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rareState != nil && h.rareState.failed != nil
}

// Live reports whether the lease is valid, and ends it if its time is up.
func (h *Hold) Live() bool {
	h.mu.Lock()
	if h.ended == nil && !h.winding && h.expired() {
		h.mu.Unlock()
		h.events.Due() // so that the cause names an ended context
		h.mu.Lock()
	}
	if h.ended != nil {
		h.mu.Unlock()
		return false
	}
	if !h.expired() {
		h.mu.Unlock()
		return true
	}
	cause := ErrExpired
	if h.winding {
		cause = errOverrun
	}
	if h.rareState != nil && h.rareState.failed != nil {
		cause = fmt.Errorf("%w: %w", cause, h.rareState.failed)
	}
	h.mark(cause)
	h.mu.Unlock()
	h.tell(cause)
	return false
}

// expired reports whether the deadline has passed. The caller holds mu.
func (h *Hold) expired() bool { return h.s.instant(h.s.Now()) >= h.deadline }

// Over returns why the lease is not valid, nil while it is.
func (h *Hold) Over() error {
	if h.Live() {
		return nil
	}
	return h.Cause()
}

// Cause returns why the lease has ended, or nil if its end was not noticed yet.
func (h *Hold) Cause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

func (h *Hold) notHeld() error { return fmt.Errorf("%w: %w", ErrNotHeld, h.Cause()) }

// mark ends the lease; the caller must call tell next. The caller holds mu.
func (h *Hold) mark(cause error) {
	h.ended = cause
	h.s.expiry.clear(h)
	if h.rareState != nil && h.rareState.cutoff != nil {
		h.rareState.cutoff.Stop()
	}
}

// tell reports the end: first to callers of Extend, and then to the user, whose Events
// may block.
func (h *Hold) tell(cause error) {
	h.s.forget(h)
	for _, e := range h.waiting() {
		e.outcome <- fmt.Errorf("%w: %w", ErrNotHeld, cause)
	}
	h.events.Ended(cause)
}

// waiting removes and returns the callers of Extend that wait for a renewal.
func (h *Hold) waiting() (all []extension) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.rareState; a != nil {
		all = append(a.extends, a.flying...)
		a.extends, a.flying = nil, nil
	}
	return all
}

// broken ends the lease after a break.
func (h *Hold) broken(reason string) { h.endWith(Broken(reason), false) }

// endWith ends a live lease with cause, and reports whether it was live. If given is set the caller
// gives the lease back.
func (h *Hold) endWith(cause error, given bool) bool {
	h.mu.Lock()
	live := h.ended == nil
	if live {
		h.given = given
		h.mark(cause)
	}
	h.mu.Unlock()
	if live {
		h.tell(cause)
	}
	return live
}

// Gone returns the cause of the end of a lease that the store no longer has.
func Gone(reply *driver.Reply) error {
	if reply.Broken {
		return Broken(reply.Reason)
	}
	return ErrGone
}

// cutOff ends the work at MaxHold.
func (h *Hold) cutOff() {
	if h.Live() {
		h.events.CutOff()
	}
}

// WindDown makes the renewal that is due the last, because the context of the work has ended: from
// then on the work has one TTL to finish and to release the lease. [Hold.Extend] still renews it.
func (h *Hold) WindDown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.winding = true
}

// GoOn ends the winding down, because new work began under the lease.
func (h *Hold) GoOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.winding && h.ended == nil && !h.terms().NoRenewal {
		h.s.keeper.Add(&h.task, h.s.Now())
	}
	h.winding = false
}
