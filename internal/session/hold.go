package session

import (
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// Events are what a Hold tells its user, who may ask it anything meanwhile, but in
// Began and Terms.
type Events interface {
	// Terms are those of the lease, always the same.
	Terms() *Terms
	// Began comes first. handed is when the store handed the lock over; zero if it
	// did not.
	Began(handed time.Time)
	// Renewed is the outcome of a renewal that was sent at sent.
	Renewed(sent time.Time, reply *driver.Reply, err error)
	// Ended comes once, when the lease is over, by whoever noticed that.
	Ended(cause error)
	// CutOff comes once, when the lease reaches its maximum. It is not over: it winds down.
	CutOff()
	// GiveBack releases, within limit, a lease that the session ended when it was closed.
	// It returns the error of Release.
	GiveBack(cause error, limit time.Duration) error
}

// Hold is one lease in the store, as this process knows it.
//
// Two things act on its clock: the keeper decides when to renew, through Ask
// and Answer; Live decides when it is over, by comparing the clock.
type Hold struct {
	s       *Session
	events  Events
	key, id string
	token   int64
	granted clock.Instant
	task    task
	alarm   int32 // its place in the agenda of the expiry

	mu sync.Mutex
	// mode is the side that may be counted on: the weaker one from the moment that a
	// downgrade is sent, and the stronger one again only when it is certain that the
	// store did not do it.
	mode     driver.Mode
	reader   bool  // the store has it as a shared one
	lowering uint8 // downgrades under way
	unsure   bool  // a downgrade was not answered
	// unanswered tells of requests of this id that may still be on their way.
	unanswered  bool
	given       bool // back, by whoever was first to do it
	uncontended bool // nobody else was there when the store answered last
	window      bool // it was handed over, and is not confirmed
	winding     bool // it is renewed once more and then no longer; see WindDown
	ttl         time.Duration
	asked       time.Duration // the TTL of the last renewal, which is at least ttl
	deadline    clock.Instant
	ended       error // why it is over
	rare        *rare // nil while it needs nothing of that
}

// rare is what few leases need: those whose renewals fail or have failed, or are asked
// for, and those that have a maximum.
type rare struct {
	cutoff   *time.Timer // at the maximum
	failed   error       // of the last renewal, until one succeeds
	attempts int         // failed in a row
	extends  []extension
	flying   []extension   // of extends that the renewal under way answers
	taken    clock.Instant // until when the store may have it by a renewal that was not answered
}

// need returns what few leases need. The caller holds mu.
func (h *Hold) need() *rare {
	if h.rare == nil {
		h.rare = new(rare)
	}
	return h.rare
}

// How a lease is lost, where it is not by force.
var (
	ErrExpired = fmt.Errorf("%w: not renewed before its deadline", ErrLost)
	ErrGone    = fmt.Errorf("%w: the store no longer has it", ErrLost)

	errOverrun = fmt.Errorf("%w: its context had ended, and it was not released within its TTL", ErrExpired)
)

// Hold has h, which is zero, be the lease that was granted to req. The error
// matches ErrClosed, or ErrMismatch if there is a lease of this id.
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
	if err := h.keep(g.handed()); err != nil {
		return err
	}
	h.start(g)
	return nil
}

// keep registers the lease, which cannot end before its user knows that it began.
func (h *Hold) keep(handed time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.s.register(h); err != nil {
		return err
	}
	began := false
	defer func() {
		if !began { // an observer panicked: nobody will release this lease
			h.s.forget(h)
		}
	}()
	h.events.Began(handed)
	began = true
	return nil
}

// start sets the clocks going. A grant that the store handed over is confirmed
// by its first renewal, which leaves at once: until it is answered a store that is
// away for the window costs the lease.
func (h *Hold) start(g Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return
	}
	h.s.expiry.set(h, h.deadline)
	if h.terms().MaxHold > 0 {
		h.need().cutoff = time.AfterFunc(h.terms().MaxHold, h.cutOff)
	}
	switch {
	case h.window:
		h.s.keeper.Add(&h.task, h.s.Now())
	case !h.terms().NoRenewal:
		h.s.keeper.Add(&h.task, h.terms().renewal(g.Origin, h.ttl))
	}
}

func (h *Hold) terms() *Terms { return h.events.Terms() }

// Key returns the key of the lock.
func (h *Hold) Key() string { return h.key }

// ID returns the lease's id in the store.
func (h *Hold) ID() string { return h.id }

// Token returns the fencing token.
func (h *Hold) Token() int64 { return h.token }

// Granted is when the lease was granted.
func (h *Hold) Granted() time.Time { return h.s.time(h.granted) }

// Held is for how long the lease has been there.
func (h *Hold) Held() time.Duration { return h.s.Now().Sub(h.Granted()) }

// Deadline is when the lease is over unless it is renewed before.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s.time(h.deadline)
}

// TTL is for how long the store has agreed to renew the lease.
func (h *Hold) TTL() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ttl
}

// Failing reports whether the last renewal failed.
func (h *Hold) Failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rare != nil && h.rare.failed != nil
}

// Live reports whether the lease is valid, and ends it if its time is up.
func (h *Hold) Live() bool {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return false
	}
	if h.s.instant(h.s.Now()) < h.deadline {
		h.mu.Unlock()
		return true
	}
	cause := ErrExpired
	if h.winding {
		cause = errOverrun
	}
	if h.rare != nil && h.rare.failed != nil {
		cause = fmt.Errorf("%w: %w", cause, h.rare.failed)
	}
	h.end(cause)
	return false
}

// Over returns why the lease is not valid, nil while it is.
func (h *Hold) Over() error {
	if h.Live() {
		return nil
	}
	return h.Cause()
}

// Cause returns why the lease has ended, nil if nobody has noticed that it has.
func (h *Hold) Cause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

func (h *Hold) notHeld() error { return fmt.Errorf("%w: %w", ErrNotHeld, h.Cause()) }

// end makes the lease over, and tells of it. The caller holds mu, which end
// releases.
func (h *Hold) end(cause error) {
	h.mark(cause)
	h.mu.Unlock()
	h.tell(cause)
}

// mark makes the lease over; tell has to follow. The caller holds mu.
func (h *Hold) mark(cause error) {
	h.ended = cause
	h.s.expiry.clear(h)
	if h.rare != nil && h.rare.cutoff != nil {
		h.rare.cutoff.Stop()
	}
}

// tell tells of the end: first those who wait for an answer, and then the user, who
// may take its time.
func (h *Hold) tell(cause error) {
	h.s.forget(h)
	for _, e := range h.waiting() {
		e.told <- fmt.Errorf("%w: %w", ErrNotHeld, cause)
	}
	h.events.Ended(cause)
}

// waiting returns those who wait for a renewal, of whom it knows no more.
func (h *Hold) waiting() (all []extension) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.rare; a != nil {
		all = append(a.extends, a.flying...)
		a.extends, a.flying = nil, nil
	}
	return all
}

// broken ends the lease that the store says was broken.
func (h *Hold) broken(reason string) { h.over(Broken(reason)) }

// over ends the lease because of cause, if it has not ended.
func (h *Hold) over(cause error) {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return
	}
	h.end(cause)
}

// Gone is how a lease was lost that the store no longer has.
func Gone(reply *driver.Reply) error {
	if reply.Broken {
		return Broken(reply.Reason)
	}
	return ErrGone
}

// cutOff lets the lease wind down at its maximum.
func (h *Hold) cutOff() {
	if h.WindDown() {
		h.events.CutOff()
	}
}

// WindDown renews the lease once more and then no longer, because the context of its work
// has ended: the work has one TTL to end and to release the lease. It reports whether the
// lease is live. [Hold.Extend] still renews it.
func (h *Hold) WindDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return false
	}
	if !h.winding && !h.terms().NoRenewal {
		h.s.keeper.Add(&h.task, h.s.Now())
	}
	h.winding = true
	return true
}

// GoOn ends the winding down: there is new work under the lease.
func (h *Hold) GoOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.winding && h.ended == nil && !h.terms().NoRenewal {
		h.s.keeper.Add(&h.task, h.s.Now())
	}
	h.winding = false
}

// quit ends a live lease that the caller then has given back.
func (h *Hold) quit(cause error) bool {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return false
	}
	h.given = true
	h.end(cause)
	return true
}
