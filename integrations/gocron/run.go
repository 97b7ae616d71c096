// Package leaseholdgocron runs the jobs of github.com/go-co-op/gocron/v2 in one scheduler
// of several. With [Locker], each job runs in the scheduler that takes its lock first. With
// [Elector], one scheduler runs all jobs.
package leaseholdgocron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
)

// run calls work with a context that ends with the context of the job and with bound, the context
// of the lease or of the leadership.
func run(job, bound context.Context, lease *leasehold.Lease, work func(context.Context, *leasehold.Lease) error) error {
	ctx, end := context.WithCancelCause(bound)
	defer end(nil)
	defer context.AfterFunc(job, func() { end(context.Cause(job)) })()
	err := work(workContext{ctx, bound, job}, lease)
	if lease.State() != leasehold.Lost {
		return err
	}
	return errors.Join(err, fmt.Errorf("job %q: %w", lease.Key(), context.Cause(lease.Context())))
}

// workContext is derived from bound, has the values and the deadline of the job's context
// too, and compares the clock, as the context of a lease does.
type workContext struct {
	context.Context
	bound, job context.Context
}

// Err implements [context.Context].
func (c workContext) Err() error {
	if err := c.bound.Err(); err != nil {
		return err
	}
	return c.Context.Err()
}

// Deadline implements [context.Context].
func (c workContext) Deadline() (time.Time, bool) {
	at, ok := c.Context.Deadline()
	if limit, limited := c.job.Deadline(); limited && (!ok || limit.Before(at)) {
		return limit, true
	}
	return at, ok
}

// Value implements [context.Context].
func (c workContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.job.Value(key)
}
