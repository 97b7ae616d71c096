package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Basic is a store with three verbs. [FromBasic] makes a [Driver] from it.
//
// Each verb is one atomic step, and an error means that its outcome is
// unknown. Ids are compared whole. Implementations are safe for concurrent
// use.
type Basic interface {
	// SetNX sets key to id for ttl if it is absent, and reports whether it did. An
	// expired key is absent.
	SetNX(ctx context.Context, key, id string, ttl time.Duration) (bool, error)
	// Renew makes key live for ttl from now if it holds id, and reports
	// whether it did. It never creates the key and never shortens its life:
	// the holder counts on the longest renewal that was confirmed, and
	// renewals can overtake one another on their way.
	Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error)
	// Delete removes key if it holds id, and reports whether it did.
	Delete(ctx context.Context, key, id string) (bool, error)
}

// FromBasic returns a driver that keeps exclusive leases in b. It serves mutexes: waiting
// by polling, renewal, release, and loss.
//
// There is no queue: a request that would wait is answered Busy and asks again. There are
// no tokens, so Reply.Token is 0, and no clock; for fencing use another store. Shared
// requests, limits, re-entry, delays, minimum tokens, and the policies WritersFirst and
// ReadersFirst are refused with [errors.ErrUnsupported]; the driver is [Limited] and
// reports that in advance.
//
// Three things are weaker than in the contract. Visit has no effect: a Release ends the
// lease of every visit, so processes should not share ids. RejectIDFor has no effect: an
// Acquire that was delayed beyond its release can take the key again, for one TTL.
// After a release with KeepClosed the key stays taken for that long or for the rest of
// the lease, whichever is longer; a repetition of the release starts that time again.
//
// Close closes b if it is an [io.Closer].
func FromBasic(b Basic) Driver { return &basic{store: b} }

type basic struct {
	store  Basic
	closed atomic.Bool
}

// Supports implements [Limited].
func (b *basic) Supports(req Request) error {
	lacking := ""
	switch {
	case req.Mode != Exclusive:
		lacking = "shared locks"
	case req.Limit > 0, req.Resize:
		lacking = "limits"
	case req.Policy == WritersFirst, req.Policy == ReadersFirst, req.Ordered:
		lacking = "a queue to order"
	case req.Reenter:
		lacking = "re-entry by owner"
	case req.LockDelay > 0:
		lacking = "lock delays"
	case req.MinToken > 0:
		lacking = "fencing tokens"
	case req.Guard:
		lacking = "mark to detect a loss of data"
	default:
		return nil
	}
	return fmt.Errorf("the store has no %s: %w", lacking, errors.ErrUnsupported)
}

// Acquire implements [Driver].
func (b *basic) Acquire(ctx context.Context, req Request) (Reply, error) {
	if err := b.Supports(req); err != nil {
		return Reply{}, err
	}
	if err := b.usable(ctx); err != nil {
		return Reply{}, err
	}
	again := false
	set, err := b.store.SetNX(ctx, req.Key, req.ID, req.TTL)
	if err == nil && !set {
		// Taken, possibly by this id in a try whose answer was lost. Only its own
		// renewal can show that, and gives the full TTL in one step.
		set, err = b.store.Renew(ctx, req.Key, req.ID, req.TTL)
		again = set
	}
	switch {
	case err != nil:
		return Reply{}, err
	case set:
		return Reply{State: Granted, Holds: 1, Replayed: again}, nil
	}
	return Reply{State: Busy}, nil
}

// inFlight bounds the concurrent calls of one Renew, so that one that hangs does not
// delay the others.
const inFlight = 16

// Renew implements [Driver].
func (b *basic) Renew(ctx context.Context, refs []Ref, each func(int, Reply, error)) {
	var (
		next atomic.Int64
		mu   sync.Mutex // each is never called concurrently
		wg   sync.WaitGroup
	)
	for range min(inFlight, len(refs)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(refs); i = int(next.Add(1)) - 1 {
				reply, err := b.renew(ctx, refs[i])
				mu.Lock()
				each(i, reply, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func (b *basic) renew(ctx context.Context, ref Ref) (Reply, error) {
	if err := b.usable(ctx); err != nil {
		return Reply{}, err
	}
	ok, err := b.store.Renew(ctx, ref.Key, ref.ID, ref.TTL)
	if err != nil || !ok {
		return Reply{}, err // Gone, if it was answered
	}
	return Reply{State: Granted, Holds: 1}, nil
}

// Release implements [Driver].
func (b *basic) Release(ctx context.Context, ref Ref) (Reply, error) {
	if err := b.usable(ctx); err != nil {
		return Reply{}, err
	}
	var ok bool
	var err error
	if ref.KeepClosed > 0 {
		// Without renewals the key expires.
		ok, err = b.store.Renew(ctx, ref.Key, ref.ID, ref.KeepClosed)
	} else {
		ok, err = b.store.Delete(ctx, ref.Key, ref.ID)
	}
	if err != nil || !ok {
		return Reply{}, err
	}
	return Reply{State: Released}, nil
}

// Close implements [Driver].
func (b *basic) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	if c, ok := b.store.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (b *basic) usable(ctx context.Context) error {
	if b.closed.Load() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
