package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Leave is called when one user of the lease stops working; last reports whether it was
// the only one. back reports whether the caller must release the lease (true once). ended
// reports whether Leave ended the lease, so that the caller must call Left. lost is why
// the lease had ended before, or nil.
func (h *Hold) Leave(last bool, cause error) (back, ended bool, lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lost = h.ended; lost != nil && !errors.Is(lost, ErrLost) {
		lost = fmt.Errorf("%w: %w", ErrLost, lost) // at its maximum, or by Close
	}
	if back = last && !h.given; back {
		h.given = true
		if ended = h.ended == nil; ended {
			h.mark(cause)
		}
	}
	return back, ended, lost
}

// Left reports the end of a lease that Leave ended.
func (h *Hold) Left(cause error) { h.tell(cause) }

// Release releases an ended lease in the store within limit. lost reports whether the
// lease was lost before; then only failures of the release itself are errors. A release
// that was not confirmed continues in the background.
func (h *Hold) Release(ctx context.Context, lost bool, limit time.Duration) error {
	h.mu.Lock()
	ref := driver.Ref{Key: h.key, ID: h.id, Uncontended: h.uncontended}
	unanswered := h.unanswered || h.unsure || h.lowering > 0
	h.mu.Unlock()
	if !lost {
		ref.KeepClosed = max(h.terms().MinHold-h.Held(), 0)
	}
	if unanswered {
		ref.RejectIDFor = timing.ForbidFor
	}
	reply, repeated, err := h.s.release(ctx, ref, limit)
	switch {
	case err != nil:
		h.goOn(ctx, ref, err)
		if repeated {
			return fmt.Errorf("release: %w", earlierUnknown(err))
		}
		return fmt.Errorf("release: %w", Unknown(err))
	case lost:
		return nil // the lease had already ended, so the answer does not matter
	}
	return h.releaseError(&reply, repeated)
}

// releaseError returns the error for the answer to the release of a live lease. Gone means that
// the lease had been lost, unless an unanswered try may have released it, or it expired
// before the answer.
func (h *Hold) releaseError(reply *driver.Reply, repeated bool) error {
	switch {
	case reply.Broken:
		return Broken(reply.Reason)
	case reply.State == driver.Gone && !repeated && h.s.Now().Before(h.Deadline()):
		return fmt.Errorf("%w: the store no longer had it at its release", ErrLost)
	}
	return nil
}

// goOn releases the lease in the background after err, for as long as the store may have
// it. It does not do so after Close, because the caller has already waited for its release
// timeout.
func (h *Hold) goOn(ctx context.Context, ref driver.Ref, err error) {
	if timing.Final(err) || h.s.IsClosing() {
		return
	}
	h.s.goOn(ctx, h.terms(), ref, h.s.Now().Add(h.longest()))
}

// longest returns how long the store may still keep the lease. Renewals under way or
// unanswered may have asked for a longer TTL than confirmed renewals.
func (h *Hold) longest() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	longest := max(h.ttl, h.asked)
	if h.rareState != nil {
		longest = max(longest, time.Duration(h.rareState.taken-h.s.instant(h.s.Now())))
	}
	return longest
}
