package session

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Extend asks for a renewal now, for ttl at least, and returns where its outcome is
// told.
func (h *Hold) Extend(ttl time.Duration) (<-chan error, error) {
	if !h.Live() {
		return nil, h.notHeld()
	}
	done := make(chan error, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHeld, h.ended)
	}
	h.ttl = max(h.ttl, ttl)
	a := h.need()
	a.extends = append(a.extends, done)
	h.s.keeper.Add(&h.task, h.s.Now())
	return done, nil
}

// Ask implements [renewable]. A try gets half of what is left, so that another one fits
// in before the deadline.
func (h *Hold) Ask(now time.Time) (driver.Ref, time.Duration, bool) {
	h.Live() // after a suspension the timer of the deadline is late
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Duration(h.deadline - h.s.instant(now))
	if h.ended != nil || left <= 0 {
		return driver.Ref{}, 0, false
	}
	h.asked = h.ttl
	if a := h.rare; a != nil {
		a.flying = append(a.flying, a.extends...)
		a.extends = nil
	}
	return driver.Ref{Key: h.key, ID: h.id, TTL: h.ttl, Uncontended: h.alone}, timing.RenewalTry(left), true
}

// Answer implements [renewable].
func (h *Hold) Answer(sent time.Time, reply driver.Reply, err error) time.Time {
	if !h.Live() {
		return time.Time{} // a late answer changes nothing
	}
	h.events.Renewed(sent, &reply, err)
	h.mu.Lock()
	switch {
	case h.ended != nil:
		h.mu.Unlock()
		return time.Time{}
	case err == nil && reply.State == driver.Granted:
		defer h.mu.Unlock()
		h.alone = reply.Uncontended
		return h.renewed(sent)
	case err == nil:
		h.end(Gone(&reply))
		return time.Time{}
	}
	a := h.need()
	a.failed = err
	a.attempts++
	if timing.Final(err) || h.terms().MaxAttempts > 0 && a.attempts >= h.terms().MaxAttempts {
		h.end(fmt.Errorf("%w: %d renewals failed: %w", ErrLost, a.attempts, err))
		return time.Time{}
	}
	defer h.mu.Unlock()
	a.extends, a.flying = append(a.flying, a.extends...), nil
	now := h.s.Now()
	left := time.Duration(h.deadline - h.s.instant(now))
	return now.Add(timing.RenewIn(h.ttl, left, a.attempts, timing.Definite(err), h.terms().MaxAttempts > 0))
}

// renewed moves the deadline; it never moves back. The caller holds mu.
func (h *Hold) renewed(sent time.Time) time.Time {
	h.deadline = max(h.deadline, h.s.instant(h.terms().deadline(sent, h.asked)))
	if a := h.rare; a != nil {
		a.failed, a.attempts = nil, 0
		for _, done := range a.flying {
			done <- nil
		}
		if a.flying = nil; len(a.extends) > 0 {
			return h.s.Now()
		}
		if a.cutoff == nil {
			h.rare = nil
		}
	}
	if h.terms().NoRenewal {
		return time.Time{}
	}
	return h.terms().renewal(sent, h.ttl)
}
