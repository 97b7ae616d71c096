package leasehold

import (
	"context"
)

// Mutex is an exclusive lock: one lease at a time. It holds no state of its
// own, so that any number of Mutex values of one key are the same lock, and is
// safe for concurrent use.
//
// Waiting is in the order of arrival at the store. A Lock of the same key under
// a lease's context, or by the same
// [WithReentrantOwner], re-enters.
type Mutex struct {
	request
	err error // what was wrong with its making
}

// Mutex returns the exclusive lock of a key: 1 to 512 bytes of UTF-8 without
// control characters. What is wrong with the key or an option is said by the
// first use of the lock, before anything is asked of the store.
func (c *Client) Mutex(key string, opts ...Option) *Mutex {
	r, err := c.lockRequest(key, opts, use{mode: Exclusive})
	return &Mutex{request: r, err: err}
}

// Lock waits until the mutex is free, and returns a lease. ctx bounds the wait and the
// lease: when ctx ends, a Lock that waits fails, and a lease that was granted ends and is
// given back. [WithMaxWait] bounds the wait alone:
//
//	mutex := client.Mutex("orders/42", leasehold.WithMaxWait(5*time.Second))
//	lease, err := mutex.Lock(ctx) // waits for 5 s, and holds for as long as ctx lives
//
// If the wait ends first the error is a [*HeldError]: it matches ErrHeld and the error of
// ctx, or [context.DeadlineExceeded] at the maximum wait. A store that is away is waited
// for too, at most for [WithMaxOutage]: an error that matches ErrUnknown says that it did
// not answer; ErrUnavailable that it certainly did nothing. Nothing is left behind in any
// case: what may have been begun is undone in the background.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.acquire(ctx, true)
}

// TryLock asks once and does not wait for the mutex. If it is held, or somebody
// waits for it, the error is a [*HeldError]. Other errors are those of Lock. It does not
// wait for a store that is away: see [WithMaxOutage].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.acquire(ctx, false)
}
