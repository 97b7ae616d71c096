package session

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// punctuality is how far a driver ends its calls by itself.
type punctuality struct {
	told  bool          // at the deadline of a context, though its Done is not closed
	after time.Duration // in any case; 0 is never
}

func punctualityOf(d driver.Driver) punctuality {
	p, ok := d.(driver.DeadlineAware)
	if !ok {
		return punctuality{}
	}
	return punctuality{told: true, after: p.CallTimeout()}
}

// bound returns a context in which a call of the driver ends after about d. A
// punctual driver needs no more than to be told, if it would take longer.
func (s *Session) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	p := s.punctual
	if p.told && p.after > 0 && p.after <= d+d/4 {
		return ctx, nothing
	}
	deadline := time.Now().Add(d)
	if end, ok := ctx.Deadline(); ok && !end.After(deadline) {
		return ctx, nothing
	}
	if !p.told {
		return context.WithDeadline(ctx, deadline)
	}
	return &punctual{ctx, deadline}, nothing
}

func nothing() {}

// punctual is a context with a deadline that is only told.
type punctual struct {
	context.Context
	deadline time.Time
}

// Deadline implements [context.Context].
func (p *punctual) Deadline() (time.Time, bool) { return p.deadline, true }
