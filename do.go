package leasehold

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Locker is any single lock: a [*Mutex], a [*RWMutex], which stands for its write side,
// a [*RLocker], a [*Semaphore], which stands for one place, or [*Places]. Code that is
// given a Locker can be tested with a lock of package memdriver, or with one of its own.
type Locker = LockerOf[*Lease]

// LockerOf is any lock whose leases are of type L: a [Locker], with leases of type
// *[Lease], or what [All] returns, with leases of type *[MultiLease].
type LockerOf[L AnyLease] interface {
	// Lock waits for the lock; see [Mutex.Lock].
	Lock(ctx context.Context) (L, error)
	// TryLock asks once; see [Mutex.TryLock].
	TryLock(ctx context.Context) (L, error)
}

// AnyLease is a *[Lease] or a *[MultiLease], or what stands for one in a test.
type AnyLease interface {
	// Context ends with the lease; see [Lease.Context].
	Context() context.Context
	// Release gives the lease back; see [Lease.Release].
	Release() error
}

// Do waits for lock, runs fn with the lease's context, and releases. It returns the
// error of fn joined with that of the release, so that it matches ErrLost if the work
// was not protected to its end: if the lease was lost, or ctx ended, while fn ran. If fn
// panics the lock is released. [FromContext] gives fn the lease and its token, and
// [MultiFromContext] those of [All].
func Do[L AnyLease](ctx context.Context, lock LockerOf[L], fn func(ctx context.Context) error) error {
	lease, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	return run(lease, fn)
}

// TryDo is Do if the lock is free. If it is held by others it returns false and
// no error.
func TryDo[L AnyLease](ctx context.Context, lock LockerOf[L], fn func(ctx context.Context) error) (ran bool, err error) {
	lease, err := lock.TryLock(ctx)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, run(lease, fn)
}

func run(lease AnyLease, fn func(ctx context.Context) error) (err error) {
	defer func() { err = withRelease(err, lease.Release()) }()
	return fn(lease.Context())
}

// withRelease joins the error of work under a lease with that of its release, and says
// once what both tell.
func withRelease(err, released error) error {
	switch {
	case errors.Is(released, ErrLost) && errors.Is(err, ErrLost):
		return err
	case err != nil && errors.Is(released, err): // why the context ended
		return released
	}
	return oneline.Join(err, released)
}

// Acquire waits for the mutex of key and returns the lease's context and its
// release, in the shape of [context.WithDeadline]. The context ends when the
// lease does; [context.Cause] tells why. release gives the lease back like
// [Lease.Release]. A ttl of 0 is the client's default.
func (c *Client) Acquire(ctx context.Context, key string, ttl time.Duration) (leaseCtx context.Context, release func() error, err error) {
	var opts []Option
	if ttl != 0 {
		opts = append(opts, WithTTL(ttl))
	}
	lease, err := c.Mutex(key, opts...).Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	return lease.Context(), lease.Release, nil
}
