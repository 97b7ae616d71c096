package leaseholdgocron

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leasehold-go/leasehold"
)

// MinHold is the time for which a job's lock stays closed from its grant on, even if the job is
// shorter. The ticks of two schedulers may differ by this time. [leasehold.WithMinHold] changes
// it.
const MinHold = 500 * time.Millisecond

// Locker makes a job run in one scheduler at a time. Pass it to [gocron.WithDistributedLocker] or
// [gocron.WithDistributedJobLocker]. It is safe for concurrent use.
//
// A scheduler that finds the lock held skips this run and does not wait. The lock is held for as
// long as the job runs, also when gocron ends the job's context at a shutdown.
type Locker struct {
	client *leasehold.Client
	opts   []leasehold.Option

	mu     sync.Mutex
	leases map[string]*leasehold.Lease // of the jobs that run here, by key
}

// NewLocker returns a locker with locks in client's store, under the names of the jobs. The
// options are as for [leasehold.Client.Mutex]; [MinHold] is set before them.
func NewLocker(client *leasehold.Client, opts ...leasehold.Option) *Locker {
	opts = slices.Concat([]leasehold.Option{leasehold.WithMinHold(MinHold)}, opts)
	return &Locker{client: client, opts: opts, leases: make(map[string]*leasehold.Lease)}
}

// Lock implements [gocron.Locker]. It asks once. The error matches
// [leasehold.ErrHeld] if the job runs elsewhere, or has just run; any other error means that the
// store could not be asked. gocron skips the run in both cases, and passes the error to
// [gocron.AfterLockError].
//
// When ctx ends, as it does at a shutdown, the lock stays closed until Unlock, or for the
// TTL of the lease.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.Mutex(key, l.opts...).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.leases[key] = lease
	l.mu.Unlock()
	return &lock{locker: l, lease: lease}, nil
}

// Lease returns the lease of the job with this key that runs in this process, or nil. A job's
// function uses it to read the token.
func (l *Locker) Lease(key string) *leasehold.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leases[key]
}

// Task returns a task for the job with the name key. Its work gets the lease, and a context that
// ends with the job or the lease and has the values of both, since gocron itself does not report
// a lost lock to the job. A run that loses its lease counts as failed, with an error that matches
// [leasehold.ErrLost], also if work returned nil.
func (l *Locker) Task(key string, work func(ctx context.Context, lease *leasehold.Lease) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		lease := l.Lease(key)
		if lease == nil {
			return fmt.Errorf("job %q runs without a lock of this name: %w", key, leasehold.ErrNotHeld)
		}
		return run(ctx, lease.Context(), lease, work)
	})
}

// lock is a [gocron.Lock].
type lock struct {
	locker *Locker
	lease  *leasehold.Lease
}

// Unlock implements [gocron.Lock]. It ignores ctx, which has ended if the scheduler is shut
// down.
func (l *lock) Unlock(context.Context) error {
	l.locker.mu.Lock()
	if l.locker.leases[l.lease.Key()] == l.lease { // otherwise it was lost, and a later run has the name
		delete(l.locker.leases, l.lease.Key())
	}
	l.locker.mu.Unlock()
	return l.lease.Release()
}
