package session

import (
	"sync"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// expiry rings for leases when their time may be up, with one timer for all.
type expiry struct {
	s *Session

	mu     sync.Mutex
	agenda agenda[Hold]
	bell   bell
}

func (e *expiry) init(s *Session) {
	e.s, e.agenda.place = s, func(h *Hold) *int32 { return &h.alarm }
}

// set has h ring at a time, instead of any that was set before.
func (e *expiry) set(h *Hold, at clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.agenda.set(h, at)
	e.arm()
}

// clear has h ring no more. The timer stays, for the next lease: one that is set and
// stopped with every lease costs more than one that finds nothing due once per TTL.
func (e *expiry) clear(h *Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.agenda.remove(h)
}

// close stops the timer, when no lease is left and none will come.
func (e *expiry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bell.stop()
}

// arm sets the timer to the first deadline, unless it fires before anyway.
func (e *expiry) arm() {
	if _, next := e.agenda.first(); next != 0 && !e.bell.ringsBy(next) {
		e.bell.set(next, e.s.instant(e.s.Now()), e.fire)
	}
}

// fire rings. Whoever is told of a loss may take its time: it delays nobody
// else's.
func (e *expiry) fire() {
	e.mu.Lock()
	e.bell.at = 0
	now := e.s.instant(e.s.Now())
	var due []*Hold
	for h, at := e.agenda.first(); h != nil && at <= now; h, at = e.agenda.first() {
		e.agenda.remove(h)
		due = append(due, h)
	}
	e.arm()
	e.mu.Unlock()
	for _, h := range due {
		if h.snooze(now) {
			go h.ring()
		}
	}
}

// snooze reports whether the lease's time is up, and otherwise has it ring at
// its deadline, which has moved.
func (h *Hold) snooze(now clock.Instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return false
	}
	if h.deadline > now {
		h.s.expiry.set(h, h.deadline)
		return false
	}
	return true
}

// ring ends the lease if its time is up. If an answer came in between it rings
// again at the new deadline.
func (h *Hold) ring() {
	if h.Live() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ended == nil {
			h.s.expiry.set(h, h.deadline)
		}
	}
}
