package session

import (
	"container/heap"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
)

// expiry rings for leases when their time may be up, with one timer for all.
type expiry struct {
	s *Session

	mu    sync.Mutex
	holds ringing
	timer *time.Timer
	armed clock.Instant // when the timer fires; 0 if it does not
}

// set has h ring at a time, instead of any that was set before.
func (e *expiry) set(h *Hold, at clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.alarm.at = at
	if h.alarm.place > 0 {
		heap.Fix(&e.holds, h.alarm.place-1)
	} else {
		heap.Push(&e.holds, h)
	}
	e.arm()
}

// clear has h ring no more.
func (e *expiry) clear(h *Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.alarm.place > 0 {
		heap.Remove(&e.holds, h.alarm.place-1)
	}
	if len(e.holds) == 0 && e.timer != nil {
		e.timer.Stop()
		e.armed = 0
	}
}

// arm sets the timer to the first deadline, unless it fires before anyway.
func (e *expiry) arm() {
	if len(e.holds) == 0 || e.armed != 0 && e.armed <= e.holds[0].alarm.at {
		return
	}
	e.armed = e.holds[0].alarm.at
	wait := max(time.Duration(e.armed-e.s.instant(e.s.Now())), 0)
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, e.fire)
		return
	}
	e.timer.Reset(wait)
}

// fire rings. Whoever is told of a loss may take its time: it delays nobody
// else's.
func (e *expiry) fire() {
	e.mu.Lock()
	e.armed = 0
	now := e.s.instant(e.s.Now())
	var due []*Hold
	for len(e.holds) > 0 && e.holds[0].alarm.at <= now {
		due = append(due, heap.Pop(&e.holds).(*Hold))
	}
	e.arm()
	e.mu.Unlock()
	for _, h := range due {
		if h.snooze(now) {
			go h.ring()
		}
	}
}

// alarm is what the expiry knows of a lease, and nobody else.
type alarm struct {
	at    clock.Instant // the deadline, or an earlier one that has moved since
	place int           // in the heap, from 1; 0 is absent
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

// ringing is a min-heap by the time to ring.
type ringing []*Hold

func (r ringing) Len() int           { return len(r) }
func (r ringing) Less(i, j int) bool { return r[i].alarm.at < r[j].alarm.at }
func (r ringing) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].alarm.place, r[j].alarm.place = i+1, j+1
}

func (r *ringing) Push(x any) {
	h := x.(*Hold)
	*r = append(*r, h)
	h.alarm.place = len(*r)
}

func (r *ringing) Pop() any {
	old := *r
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	h.alarm.place = 0
	return h
}
