// Package leaseholdcron runs jobs of github.com/robfig/cron/v3 on one host of several.
package leaseholdcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold"
)

// MinHold is how long a job's lock stays closed from its grant on, even if the job takes
// less: so long may the ticks of two hosts lie apart. [leasehold.WithMinHold] changes it.
const MinHold = 500 * time.Millisecond

// OneHost returns a wrapper by which a job runs on one host at a time: where the lock of
// key in client's store is taken first. A host that comes later skips this run, and says
// so to log by Info; what else keeps the job from running, or takes its lock while it runs,
// is told by Error. The options are those of [leasehold.Client.Mutex]; [MinHold] is set before them.
//
// Each job has a key, and so a wrapper, of its own: in a chain of [cron.WithChain] all jobs
// would exclude each other. Wrappers that stand before it, such as [cron.Recover], see what
// happens under the lock. A job that is to notice the loss of its lock is a [Job].
func OneHost(client *leasehold.Client, key string, log cron.Logger, opts ...leasehold.Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(client, key, log, func(context.Context, *leasehold.Lease) error {
			job.Run()
			return nil
		}, opts...)
	}
}

// Job returns a job that runs on one host at a time, as [OneHost] tells. Its work gets the
// lease, for its token, and a context that ends with the lease. What it returns is told
// to log by Error.
func Job(client *leasehold.Client, key string, log cron.Logger, work func(ctx context.Context, lease *leasehold.Lease) error, opts ...leasehold.Option) cron.Job {
	mutex := client.Mutex(key, slices.Concat([]leasehold.Option{leasehold.WithMinHold(MinHold)}, opts)...)
	return cron.FuncJob(func() {
		// cron has no context: nothing ends the lease but its loss, and the job's return.
		lease, err := mutex.TryLock(context.Background())
		switch {
		case errors.Is(err, leasehold.ErrHeld):
			log.Info("skip", "lock", key, "reason", err)
		case err != nil:
			log.Error(err, "skip", "lock", key)
		default:
			run(lease, log, work)
		}
	})
}

// run does work and gives the lease back, also if work panics.
func run(lease *leasehold.Lease, log cron.Logger, work func(context.Context, *leasehold.Lease) error) {
	defer func() {
		if err := lease.Release(); err != nil {
			log.Error(err, "release", "lock", lease.Key())
		}
	}()
	if err := work(lease.Context(), lease); err != nil {
		log.Error(fmt.Errorf("job %q: %w", lease.Key(), err), "run", "lock", lease.Key())
	}
}
