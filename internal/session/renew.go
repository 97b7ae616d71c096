package session

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Extend asks for a renewal now, for ttl at least, and returns where its outcome is
// told. The lease is renewed for ttl from then on only if the store has done it once.
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
	a := h.need()
	a.extends = append(a.extends, extension{ttl: ttl, told: done})
	h.s.keeper.Add(&h.task, h.s.Now())
	return done, nil
}

// extension is a caller of Extend who waits.
type extension struct {
	ttl  time.Duration
	told chan error
	// unsure tells that a renewal was not answered that may have done it.
	unsure bool
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
		for _, e := range a.flying {
			h.asked = max(h.asked, e.ttl)
		}
	}
	return driver.Ref{Key: h.key, ID: h.id, TTL: h.asked, Uncontended: h.uncontended}, timing.RenewalTry(left), true
}

// Slack implements [renewable].
func (h *Hold) Slack() time.Duration { return min(h.terms().TTL/30, time.Second) }

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
		h.uncontended = reply.Uncontended
		return h.renewed(sent)
	case err == nil:
		h.end(Gone(&reply))
		return time.Time{}
	}
	a := h.need()
	refused := timing.Refused(err)
	if refused {
		h.refuse(a, err)
		if h.asked > h.ttl || h.onlyAsked() {
			defer h.mu.Unlock()
			return h.fallBack(a)
		}
	}
	if !timing.Definite(err) {
		h.doubt(a)
	}
	a.failed = err
	a.attempts++
	if timing.Final(err) && !refused || h.terms().MaxAttempts > 0 && a.attempts >= h.terms().MaxAttempts {
		h.end(fmt.Errorf("%w: %d renewals failed: %w", ErrLost, a.attempts, err))
		return time.Time{}
	}
	defer h.mu.Unlock()
	a.extends, a.flying = append(a.flying, a.extends...), nil
	now := h.s.Now()
	left := time.Duration(h.deadline - h.s.instant(now))
	return now.Add(timing.RenewIn(h.ttl, left, a.attempts, timing.Definite(err), h.terms().MaxAttempts > 0))
}

// doubt notes that the store may have renewed the lease without an answer. The caller
// holds mu.
func (h *Hold) doubt(a *rare) {
	a.taken = max(a.taken, h.lasting())
	for i := range a.flying {
		a.flying[i].unsure = true
	}
}

// lasting is when a renewal that the store has done by now is over there at the latest,
// unless another one follows. The caller holds mu.
func (h *Hold) lasting() clock.Instant { return h.s.instant(h.s.Now()) + clock.Instant(h.asked) }

// refuse tells those who wait that the store does not renew the lease for as long as they
// want. Those who want less than this renewal asked for go on waiting. The caller holds mu.
func (h *Hold) refuse(a *rare, err error) {
	var less []extension
	for _, e := range a.flying {
		switch {
		case h.ttl < h.asked && e.ttl < h.asked:
			less = append(less, e)
		case e.unsure:
			e.told <- unknown(err)
		default:
			e.told <- err
		}
	}
	a.extends, a.flying = append(less, a.extends...), nil
}

// onlyAsked reports whether the lease is renewed only for those who ask for it. The caller
// holds mu.
func (h *Hold) onlyAsked() bool { return !h.window && h.terms().NoRenewal }

// fallBack returns when the lease is renewed without those whose extension the store has
// refused. The refusal says nothing against the lease as it was. The caller holds mu.
func (h *Hold) fallBack(a *rare) time.Time {
	h.asked = h.ttl
	if len(a.extends) == 0 && h.onlyAsked() {
		a.failed, a.attempts = nil, 0
		return time.Time{}
	}
	return h.s.Now()
}

// renewed moves the deadline; it never moves back. The caller holds mu.
func (h *Hold) renewed(sent time.Time) time.Time {
	h.ttl, h.window = h.asked, false
	h.deadline = max(h.deadline, h.s.instant(h.terms().deadline(sent, h.asked)))
	if a := h.rare; a != nil {
		a.failed, a.attempts = nil, 0
		for _, e := range a.flying {
			e.told <- nil
		}
		if a.flying = nil; len(a.extends) > 0 {
			return h.s.Now()
		}
		if a.cutoff == nil && a.taken <= h.lasting() {
			h.rare = nil
		}
	}
	if h.terms().NoRenewal || h.winding {
		return time.Time{}
	}
	return h.terms().renewal(sent, h.ttl)
}
