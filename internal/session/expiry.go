package session

import (
	"sync"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// expiry ends leases at their deadlines, using one timer for all.
type expiry struct {
	s *Session

	mu    sync.Mutex
	heap  dueHeap[Hold]
	timer alarmTimer
}

func (e *expiry) init(s *Session) {
	e.s, e.heap.place = s, func(h *Hold) *int32 { return &h.alarm }
}

// set sets or changes the time at which to check h.
func (e *expiry) set(h *Hold, at clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heap.set(h, at)
	e.arm()
}

// clear removes h. The timer stays set for the next lease: a timer that finds nothing
// due once per TTL costs less than one that is set and stopped with every lease.
func (e *expiry) clear(h *Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heap.remove(h)
}

// close stops the timer. It is called when there are no leases and there will be no more.
func (e *expiry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer.stop()
}

// arm sets the timer to the first deadline, unless it fires before anyway.
func (e *expiry) arm() {
	if _, next := e.heap.first(); next != 0 && !e.timer.firesBy(next) {
		e.timer.set(next, e.s.instant(e.s.Now()), e.fire)
	}
}

// fire ends the leases that are due. Each ends in a goroutine of its own, because its
// Events may block.
func (e *expiry) fire() {
	e.mu.Lock()
	e.timer.at = 0
	now := e.s.instant(e.s.Now())
	var due []*Hold
	for h, at := e.heap.first(); h != nil && at <= now; h, at = e.heap.first() {
		e.heap.remove(h)
		due = append(due, h)
	}
	e.arm()
	e.mu.Unlock()
	for _, h := range due {
		if h.reachedDeadline(now) {
			go h.endIfExpired()
		}
	}
}

// reachedDeadline reports whether the deadline has passed. If the deadline has moved, it sets the
// timer again.
func (h *Hold) reachedDeadline(now clock.Instant) bool {
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

// endIfExpired ends the lease if its deadline has passed. If an answer has moved the deadline
// in between, it sets the timer again.
func (h *Hold) endIfExpired() {
	if h.Live() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ended == nil {
			h.s.expiry.set(h, h.deadline)
		}
	}
}
