package session

import (
	"sync"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// expiry ends leases at their deadlines, using one timer for all.
type expiry struct {
	s *Session

	mu     sync.Mutex
	agenda agenda[Hold]
	bell   bell
}

func (e *expiry) init(s *Session) {
	e.s, e.agenda.place = s, func(h *Hold) *int32 { return &h.alarm }
}

// set sets or changes the time at which to check h.
func (e *expiry) set(h *Hold, at clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.agenda.set(h, at)
	e.arm()
}

// clear removes h. The timer stays set for the next lease: a timer that finds nothing
// due once per TTL costs less than one that is set and stopped with every lease.
func (e *expiry) clear(h *Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.agenda.remove(h)
}

// close stops the timer. It is called when there are no leases and there will be no more.
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

// fire ends the leases that are due. Each ends in a goroutine of its own, because its
// Events may block.
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

// snooze reports whether the deadline has passed. If the deadline has moved, it sets the
// timer again.
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

// ring ends the lease if its deadline has passed. If an answer has moved the deadline
// in between, it sets the timer again.
func (h *Hold) ring() {
	if h.Live() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ended == nil {
			h.s.expiry.set(h, h.deadline)
		}
	}
}
