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

// MinHold is the time for which a job's lock stays closed from its grant on, even if the job is
// shorter. The ticks of two hosts may differ by this time. [leasehold.WithMinHold] changes it.
const MinHold = 500 * time.Millisecond

// OneHost returns a wrapper that runs a job on one host at a time: on the host that first takes
// the lock of key in client's store. The other hosts skip this run, and log it by Info. Other
// failures, and the loss of the lock during a run, are logged by Error. The options are as for
// [leasehold.Client.Mutex]; [MinHold] is set before them.
//
// Each job needs its own key, and so its own wrapper: in a chain of [cron.WithChain] all jobs
// would exclude each other. Wrappers before it in the chain, such as [cron.Recover], also wrap
// the work under the lock. Use [Job] for a job that has to notice the loss of its lock.
func OneHost(client *leasehold.Client, key string, log cron.Logger, opts ...leasehold.Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(client, key, log, func(context.Context, *leasehold.Lease) error {
			job.Run()
			return nil
		}, opts...)
	}
}

// Job returns a job that runs on one host at a time; see [OneHost]. Its work gets the lease, for
// the token, and a context that ends with the lease. Its error is logged by Error.
func Job(client *leasehold.Client, key string, log cron.Logger, work func(ctx context.Context, lease *leasehold.Lease) error, opts ...leasehold.Option) cron.Job {
	mutex := client.Mutex(key, slices.Concat([]leasehold.Option{leasehold.WithMinHold(MinHold)}, opts)...)
	return cron.FuncJob(func() {
		// cron has no context: the lease ends by its loss or by the job's return.
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

// run calls work and gives the lease back, also if work panics.
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
