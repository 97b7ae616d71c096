package session

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Mode returns the mode that the caller may rely on. It becomes shared when Lower is
// called, and exclusive again only if the store certainly did not downgrade the lease.
func (h *Hold) Mode() driver.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

// Lowering reports whether a request under way may turn the lease from exclusive to
// shared.
func (h *Hold) Lowering() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.reader && (h.unsure || h.lowering > 0)
}

// CanLower returns nil if the lease is exclusive, and otherwise an error with the reason.
func (h *Hold) CanLower() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended != nil:
		return fmt.Errorf("%w: %w", ErrNotHeld, h.ended)
	case h.reader:
		return fmt.Errorf("a reader's lease: %w", driver.ErrMismatch)
	}
	return nil
}

// Lower makes the lease shared on this side. The caller must call Downgrade next.
func (h *Hold) Lower() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mode = driver.Shared
	h.lowering++
}

// Downgrade makes the lease shared in the store. It sets the lease's fields in req; the
// caller sets the other fields.
func (h *Hold) Downgrade(ctx context.Context, req driver.Request) error {
	req.ID, req.TTL, req.HintAddress, req.Downgrade = h.id, h.TTL(), h.s.Address(), true
	sent := h.s.Now()
	reply, err := h.s.drv.Acquire(ctx, req)
	return h.downgraded(sent, req.TTL, &reply, err)
}

// downgraded applies the outcome of a downgrade that was sent at sent.
func (h *Hold) downgraded(sent time.Time, ttl time.Duration, reply *driver.Reply, err error) error {
	h.Live() // ends it if its time is up: a late answer is ignored
	h.mu.Lock()
	h.lowering--
	switch {
	case err != nil:
		defer h.mu.Unlock()
		h.unsure = h.unsure || !timing.Definite(err)
		if !h.unsure && !h.reader && h.lowering == 0 {
			h.mode = driver.Exclusive
		}
		if h.unsure {
			return earlierUnknown(err)
		}
		return err
	case h.ended != nil:
		h.mu.Unlock()
		return h.notHeld()
	case reply.State != driver.Granted:
		h.mu.Unlock()
		h.endWith(Gone(reply), false)
		return h.notHeld()
	}
	defer h.mu.Unlock()
	h.reader, h.uncontended = true, reply.Uncontended
	h.deadline = max(h.deadline, h.s.instant(h.terms().deadline(sent, ttl)))
	return nil
}
