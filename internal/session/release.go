package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Leave is for somebody who works under the lease no more; last tells that nobody
// else does. It returns whether the caller has to release the lease, which is so once;
// whether the lease was ended just now, so that Left has to follow; and why the work
// was unprotected at its end, if it was.
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

// Left tells of an end by Leave.
func (h *Hold) Left(cause error) { h.tell(cause) }

// Release gives the lease back in the store, for at most limit, and judges the
// answer. It has ended before; lost tells that it was lost. A release that was not
// confirmed goes on in the background.
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
			return fmt.Errorf("release: %w", unknown(err))
		}
		return fmt.Errorf("release: %w", Unknown(err))
	case lost:
		return nil // what it says of a lease that was over is no news
	}
	return h.judge(&reply, repeated)
}

// judge is what the answer to the release says of a lease that was live when it
// was given back. Gone means that it had been lost, unless a try that was not
// answered may have released it, or its time ran out until the store answered.
func (h *Hold) judge(reply *driver.Reply, repeated bool) error {
	switch {
	case reply.Broken:
		return Broken(reply.Reason)
	case reply.State == driver.Gone && !repeated && h.s.Now().Before(h.Deadline()):
		return fmt.Errorf("%w: the store no longer had it at its release", ErrLost)
	}
	return nil
}

// goOn releases a lease in the background whose release failed with err, while
// the store may have it. A session that is closed does not wait for that: whoever
// released it has waited for its release timeout.
func (h *Hold) goOn(ctx context.Context, ref driver.Ref, err error) {
	if timing.Final(err) || h.s.IsClosing() {
		return
	}
	h.s.goOn(ctx, h.terms(), ref, h.s.Now().Add(h.longest()))
}

// longest is how long the store may keep the lease from now on: a renewal that is under way
// or was not answered may have asked for more than those that were.
func (h *Hold) longest() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	longest := max(h.ttl, h.asked)
	if h.rare != nil {
		longest = max(longest, time.Duration(h.rare.taken-h.s.instant(h.s.Now())))
	}
	return longest
}
