package session

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Extend requests a renewal now, for at least ttl, and returns the channel for its
// outcome. If the store agrees, later renewals use ttl, too.
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
	a := h.needRareState()
	a.extends = append(a.extends, extension{ttl: ttl, outcome: done})
	h.s.keeper.Add(&h.task, h.s.Now())
	return done, nil
}

// extension is a waiting call of Extend.
type extension struct {
	ttl     time.Duration
	outcome chan error
	// unsure reports whether an unanswered renewal may have extended the lease.
	unsure bool
}

// Ask implements [renewable]. A try gets half of the time left, so that another fits in
// before the deadline.
func (h *Hold) Ask(now time.Time) (driver.Ref, time.Duration, bool) {
	h.Live() // after a suspension the deadline's timer is late
	h.events.Due()
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Duration(h.deadline - h.s.instant(now))
	if h.ended != nil || left <= 0 {
		return driver.Ref{}, 0, false
	}
	h.asked = h.ttl
	if a := h.rareState; a != nil {
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
		return time.Time{} // a late answer is ignored
	}
	h.events.Renewed(sent, &reply, err)
	next, cause := h.judge(sent, &reply, err)
	if cause != nil {
		h.tell(cause)
	}
	return next
}

// judge returns when the next renewal is due, or the cause with which it has ended the lease. The
// caller then calls tell.
func (h *Hold) judge(sent time.Time, reply *driver.Reply, err error) (next time.Time, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended != nil:
		return next, nil
	case err == nil && reply.State == driver.Granted:
		h.uncontended = reply.Uncontended
		return h.renewed(sent), nil
	case err == nil:
		cause = Gone(reply)
	default:
		next, cause = h.failed(err)
	}
	if cause != nil {
		h.mark(cause)
	}
	return next, cause
}

// failed returns when a failed renewal is repeated, or why the lease ends. The caller holds mu.
func (h *Hold) failed(err error) (next time.Time, cause error) {
	a := h.needRareState()
	refused := timing.Refused(err)
	if refused {
		h.refuse(a, err)
		if h.asked > h.ttl || h.onlyAsked() {
			return h.fallBack(a), nil
		}
	}
	if !timing.Definite(err) {
		h.markUnconfirmed(a)
	}
	a.failed = err
	left := time.Duration(h.deadline - h.s.instant(h.s.Now()))
	early := h.eager() && left > h.terms().Life(h.ttl)-h.terms().pause(h.ttl) // only for Wanted
	if !early {
		a.attempts++
	}
	if timing.Final(err) && !refused || h.terms().MaxAttempts > 0 && a.attempts >= h.terms().MaxAttempts {
		return next, fmt.Errorf("%w: %d renewals failed: %w", ErrLost, a.attempts, err)
	}
	a.extends, a.flying = append(a.flying, a.extends...), nil
	pause := timing.RenewIn(h.ttl, left, max(a.attempts, 1), timing.Definite(err), h.terms().MaxAttempts > 0)
	if early {
		pause = min(pause, wantedEvery)
	}
	return h.s.Now().Add(pause), nil
}

// markUnconfirmed records that an unanswered renewal may have taken effect. The caller holds mu.
func (h *Hold) markUnconfirmed(a *rareState) {
	a.taken = max(a.taken, h.lasting())
	for i := range a.flying {
		a.flying[i].unsure = true
	}
}

// lasting returns when a renewal that the store has executed before now expires at the
// latest. The caller holds mu.
func (h *Hold) lasting() clock.Instant { return h.s.instant(h.s.Now()) + clock.Instant(h.asked) }

// refuse reports a refused renewal to the waiting extensions. Those with a shorter TTL
// than this renewal asked for stay and are tried again. The caller holds mu.
func (h *Hold) refuse(a *rareState, err error) {
	var less []extension
	for _, e := range a.flying {
		switch {
		case h.ttl < h.asked && e.ttl < h.asked:
			less = append(less, e)
		case e.unsure:
			e.outcome <- earlierUnknown(err)
		default:
			e.outcome <- err
		}
	}
	a.extends, a.flying = append(less, a.extends...), nil
}

// onlyAsked reports whether only Extend renews the lease. The caller holds mu.
func (h *Hold) onlyAsked() bool { return !h.window && h.terms().NoRenewal }

// fallBack returns when to renew the lease without the refused extensions: the refusal
// does not affect the lease with its previous TTL. The caller holds mu.
func (h *Hold) fallBack(a *rareState) time.Time {
	h.asked = h.ttl
	if len(a.extends) == 0 && h.onlyAsked() {
		a.failed, a.attempts = nil, 0
		return time.Time{}
	}
	return h.s.Now()
}

// renewed applies a successful renewal and returns when the next is due. The deadline
// never moves back. The caller holds mu.
func (h *Hold) renewed(sent time.Time) time.Time {
	h.ttl, h.window = h.asked, false
	h.deadline = max(h.deadline, h.s.instant(h.terms().deadline(sent, h.asked)))
	if a := h.rareState; a != nil {
		a.failed, a.attempts = nil, 0
		for _, e := range a.flying {
			e.outcome <- nil
		}
		if a.flying = nil; len(a.extends) > 0 {
			return h.s.Now()
		}
		if a.cutoff == nil && a.places == "" && a.wanted == nil && a.taken <= h.lasting() {
			h.rareState = nil
		}
	}
	if h.terms().NoRenewal || h.winding {
		return time.Time{}
	}
	pause := h.terms().pause(h.ttl)
	if h.eager() {
		pause = min(pause, wantedEvery)
	}
	return sent.Add(pause)
}
