package session

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// punctuality describes how a driver limits the time of its calls.
type punctuality struct {
	observesDeadline bool          // it observes a context's Deadline without Done
	after            time.Duration // its own limit; 0 means no limit
}

func punctualityOf(d driver.Driver) punctuality {
	p, ok := d.(driver.DeadlineAware)
	if !ok {
		return punctuality{}
	}
	return punctuality{observesDeadline: true, after: p.CallTimeout()}
}

// bound returns a context in which a call of the driver ends after about d. A driver with
// observesDeadline set needs only the Deadline, or not even that if its own limit is short enough.
func (s *Session) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	p := s.punctual
	if p.observesDeadline && p.after > 0 && p.after <= d+d/4 {
		return ctx, noop
	}
	deadline := time.Now().Add(d)
	if end, ok := ctx.Deadline(); ok && !end.After(deadline) {
		return ctx, noop
	}
	if !p.observesDeadline {
		return context.WithDeadline(ctx, deadline)
	}
	return timing.Untimed(ctx, deadline), noop
}

func noop() {}
