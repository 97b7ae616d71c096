package timing

import (
	"context"
	"time"
)

// Sleep sleeps for d and returns true. It returns false as soon as ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Untimed returns ctx with a deadline at which it does not end. It costs no timer, and is for
// drivers that implement [driver.DeadlineAware].
func Untimed(ctx context.Context, deadline time.Time) context.Context {
	return &untimed{ctx, deadline}
}

type untimed struct {
	context.Context
	deadline time.Time
}

// Deadline implements [context.Context].
func (c *untimed) Deadline() (time.Time, bool) { return c.deadline, true }
