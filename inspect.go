package leasehold

import (
	"context"
	"fmt"
	"iter"

	"github.com/leasehold-go/leasehold/driver"
)

// Inspect returns a picture of one lock: who holds it, who waits. The error
// matches ErrUnsupported if the store cannot tell.
func (c *Client) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if err := check("key", key, MaxKey); err != nil {
		return driver.Snapshot{}, lockError(key, err)
	}
	store, ok := c.drv.(driver.Inspector)
	if !ok {
		return driver.Snapshot{}, lockError(key, fmt.Errorf("inspect: %w by this store", ErrUnsupported))
	}
	snap, err := store.Inspect(ctx, key)
	if err != nil {
		return driver.Snapshot{}, lockError(key, fmt.Errorf("inspect: %w", err))
	}
	return snap, nil
}

// Keys yields the keys, with the given prefix, of locks that are held or waited
// for, in no particular order; a key may come twice. An error ends it, and
// matches ErrUnsupported if the store cannot tell.
func (c *Client) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		store, ok := c.drv.(driver.Inspector)
		if !ok {
			yield("", fmt.Errorf("leasehold: list: %w by this store", ErrUnsupported))
			return
		}
		for cursor := ""; ; {
			keys, next, err := store.List(ctx, prefix, cursor)
			if err != nil {
				yield("", fmt.Errorf("leasehold: list: %w", err))
				return
			}
			for _, key := range keys {
				if !yield(key, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}

// MaxReason is the length of the longest reason of a break, in bytes.
const MaxReason = 256

// Break ends a lease, or a place in the queue, by force: the one of this id and
// no other. Its holder learns the reason, with ErrForced, by its next renewal
// at the latest. The lock stays closed for the [WithLockDelay] that the holder
// chose. The error matches ErrNotHeld if the id is not there, and
// ErrUnsupported if the store cannot do it.
//
// What the holder was doing goes on until it looks at its lease: break locks of
// holders that are known to be dead, or fence.
func (c *Client) Break(ctx context.Context, key, id, reason string) error {
	if err := check("key", key, MaxKey); err != nil {
		return lockError(key, err)
	}
	if err := check("reason", reason, MaxReason); err != nil {
		return lockError(key, err)
	}
	store, ok := c.drv.(driver.Breaker)
	if !ok {
		return lockError(key, fmt.Errorf("break: %w by this store", ErrUnsupported))
	}
	reply, err := store.Break(ctx, key, id, reason)
	switch {
	case err != nil:
		return lockError(key, fmt.Errorf("break: %w", unknown(err)))
	case reply.State == driver.Gone:
		return lockError(key, fmt.Errorf("break: lease %q: %w", id, ErrNotHeld))
	}
	return nil
}
