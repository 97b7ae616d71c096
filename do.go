package leasehold

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Locker is any lock that can be waited for.
type Locker interface {
	Lock(ctx context.Context) (*Lease, error)
}

// TryLocker is any lock that can be asked for once.
type TryLocker interface {
	TryLock(ctx context.Context) (*Lease, error)
}

// Do waits for lock, runs fn with the lease's context, and releases. It
// returns the error of fn joined with that of the release, so that it matches
// ErrLost if the lease was lost while fn ran. If fn panics the lock is
// released. [FromContext] gives fn the lease and its token.
func Do(ctx context.Context, lock Locker, fn func(ctx context.Context) error) error {
	lease, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	return run(lease, fn)
}

// TryDo is Do if the lock is free. If it is held by others it returns false and
// no error.
func TryDo(ctx context.Context, lock TryLocker, fn func(ctx context.Context) error) (ran bool, err error) {
	lease, err := lock.TryLock(ctx)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, run(lease, fn)
}

func run(lease *Lease, fn func(ctx context.Context) error) (err error) {
	defer func() {
		released := lease.Release()
		if errors.Is(released, ErrLost) && errors.Is(err, ErrLost) {
			return // fn has told already
		}
		err = oneline.Join(err, released)
	}()
	return fn(lease.Context())
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
