package leasehold

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// bound returns a context in which a call of the driver ends after d. A
// punctual driver needs no more than to be told.
func (c *Client) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := c.drv.(driver.Punctual); !ok {
		return context.WithTimeout(ctx, d)
	}
	deadline := time.Now().Add(d)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(deadline) {
		return ctx, nothing
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
