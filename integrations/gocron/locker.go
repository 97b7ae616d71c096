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

// MinHold is how long a job's lock stays closed from its grant on, even if the job takes
// less: so long may the ticks of two schedulers lie apart. [leasehold.WithMinHold]
// changes it.
const MinHold = 500 * time.Millisecond

// Locker has a job run in one scheduler at a time. It is given to
// [gocron.WithDistributedLocker] or [gocron.WithDistributedJobLocker] and is safe for
// concurrent use.
//
// A scheduler that finds the lock held skips this run: nobody waits. The lock lives for
// as long as the job runs, also when gocron ends the job's context at a shutdown.
type Locker struct {
	client *leasehold.Client
	opts   []leasehold.Option

	mu     sync.Mutex
	leases map[string]*leasehold.Lease // of the jobs that run here, by key
}

// NewLocker returns a locker whose locks lie in client's store, under the names of the
// jobs. The options are those of [leasehold.Client.Mutex]; [MinHold] is set before them.
func NewLocker(client *leasehold.Client, opts ...leasehold.Option) *Locker {
	opts = slices.Concat([]leasehold.Option{leasehold.WithMinHold(MinHold)}, opts)
	return &Locker{client: client, opts: opts, leases: make(map[string]*leasehold.Lease)}
}

// Lock implements [gocron.Locker]. It asks once. The error matches
// [leasehold.ErrHeld] if the job runs elsewhere, or has just run; any other says that
// the store could not be asked. gocron skips the run in both cases, and gives the error
// to [gocron.AfterLockError].
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

// Lease returns the lease under which the job of this key runs in this process, or nil
// if it does not. A job's function asks it for its token.
func (l *Locker) Lease(key string) *leasehold.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leases[key]
}

// Task returns a task for the job that has the name key. Its work gets the lease, and a
// context that ends with the lease, too, not only with the job, and has the values of both:
// gocron itself tells a job nothing of a lock that is lost. The run then counts as failed, with an error that matches
// [leasehold.ErrLost], whatever work returned.
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

// Unlock implements [gocron.Lock]. It takes no notice of ctx, which has ended if the
// scheduler is shut down.
func (l *lock) Unlock(context.Context) error {
	l.locker.mu.Lock()
	if l.locker.leases[l.lease.Key()] == l.lease { // not if it was lost, and the job started anew
		delete(l.locker.leases, l.lease.Key())
	}
	l.locker.mu.Unlock()
	return l.lease.Release()
}
