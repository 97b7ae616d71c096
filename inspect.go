package leasehold

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Snapshot is one consistent picture of a lock, from [Client.Inspect]: its Holders,
// its Waiters in the order in which they will be served, the last fencing Token, the
// Limit of a semaphore, for how much longer the lock stays closed without a holder, and the
// number of calls in this client's Line, which one waiter or holder represents in the store;
// see [WithLocalHandover]. It is a copy that belongs to the caller.
type Snapshot = driver.Snapshot

// Holder is a party that holds a lock: its lease id, its owner and labels, its mode
// and weight, its fencing token, when its lease began by the holder's own clock, and
// for how much longer the lease lives unless it is renewed.
type Holder = driver.Holder

// Waiter is a party that waits for a lock: the id of its place in the queue, its
// owner and labels, its mode and weight, its position from 1, when it began to
// wait by its own clock, and for how much longer the store keeps the place unless
// the waiter asks again.
type Waiter = driver.Waiter

// Mode is the way in which a party holds a lock or waits for it: [Exclusive] or [Shared].
type Mode = driver.Mode

const (
	// Exclusive is the mode of mutexes and writers: no other party holds the lock,
	// but for parties of the same re-entrant owner.
	Exclusive = driver.Exclusive
	// Shared is the mode of readers and of holders of a semaphore: several parties hold the
	// lock, up to its limit.
	Shared = driver.Shared
)

// Inspect returns the holders and waiters of one lock. A lock that is not in use has an empty
// Snapshot. The error matches [ErrUnavailable] if the store does not answer, [ErrUnsupported]
// if it cannot be inspected, and [ErrClosed] after Close.
func (c *Client) Inspect(ctx context.Context, key string) (Snapshot, error) {
	if err := check.Key(key); err != nil {
		return Snapshot{}, lockError(key, err)
	}
	store, ok := driver.As[driver.Inspector](c.session.Driver())
	if !ok {
		return Snapshot{}, lockError(key, fmt.Errorf("inspect: %w by this store", ErrUnsupported))
	}
	snap, err := c.read(ctx, key, store.Inspect)
	if err == nil {
		snap.Line = c.lines.Len(key)
	}
	return snap, err
}

// read returns the result of inspect, a function of the store.
func (c *Client) read(ctx context.Context, key string, inspect func(context.Context, string) (Snapshot, error)) (snap Snapshot, err error) {
	if snap, err = inspect(ctx, key); err != nil {
		return Snapshot{}, lockError(key, fmt.Errorf("inspect: %w", c.readError(ctx, err)))
	}
	return snap, nil
}

// usable returns ErrClosed after Close.
func (c *Client) usable() error {
	if c.session.IsClosing() {
		return ErrClosed
	}
	return nil
}

// readError returns the error of a read that failed with err. ErrClosed is returned alone, and
// the cancellation by the caller is not blamed on the store.
func (c *Client) readError(ctx context.Context, err error) error {
	switch {
	case c.usable() != nil:
		return c.usable()
	case errors.Is(ctx.Err(), context.Canceled):
		return session.Because(session.CauseOf(ctx), err)
	}
	return timing.OfRead(err)
}

// Keys yields the keys, with the given prefix, of locks that are held or waited
// for, in no particular order; a key may come twice. An error ends it, and
// matches ErrUnavailable if the store does not answer, ErrUnsupported if it cannot
// list, and ErrClosed after Close.
func (c *Client) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		store, ok := driver.As[driver.Inspector](c.session.Driver())
		if !ok {
			yield("", fmt.Errorf("leasehold: list: %w by this store", ErrUnsupported))
			return
		}
		for cursor := ""; ; {
			if err := c.usable(); err != nil {
				yield("", fmt.Errorf("leasehold: list: %w", err))
				return
			}
			keys, next, err := store.List(ctx, prefix, cursor)
			if err != nil {
				yield("", fmt.Errorf("leasehold: list: %w", c.readError(ctx, err)))
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

// MaxReason is the length of the longest reason of a break: 256 bytes.
const MaxReason = check.MaxReason

// Break ends the lease, or the place in the queue, with this id by force. The lease's holder
// gets an error that matches ErrBroken and contains the reason: at once if it is in this
// process or listens to the store, as a client does that has waited or has held a lease for a
// second; otherwise at its next renewal. The reason is at most [MaxReason] bytes of UTF-8
// without control characters. An empty reason is replaced by the client's [WithName]. The lock stays closed for the [WithLockDelay] that the holder
// chose. The error matches ErrNotHeld if the id is not there, and ErrUnsupported if the
// store cannot do it.
//
// The holder's work goes on until it looks at its lease. So break only the locks of holders
// that are known to be dead, or use fencing.
func (c *Client) Break(ctx context.Context, key, id, reason string) error {
	if err := check.Key(key); err != nil {
		return lockError(key, err)
	}
	if reason == "" {
		reason = "by " + strings.ToValidUTF8(c.cfg.name[:min(len(c.cfg.name), MaxReason-3)], "")
	}
	if err := check.Text("reason", reason, 1, MaxReason); err != nil {
		return lockError(key, err)
	}
	store, ok := driver.As[driver.Breaker](c.session.Driver())
	if !ok {
		return lockError(key, fmt.Errorf("break: %w by this store", ErrUnsupported))
	}
	if err := c.usable(); err != nil {
		return lockError(key, fmt.Errorf("break: %w", err))
	}
	reply, err := store.Break(ctx, key, id, reason)
	switch {
	case err != nil:
		return lockError(key, fmt.Errorf("break: %w", session.Unknown(err)))
	case reply.State == driver.Gone:
		return lockError(key, fmt.Errorf("break: lease %q: %w", id, ErrNotHeld))
	}
	session.EndLocal(key, id, session.Broken(reason))
	return nil
}
