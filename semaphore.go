package leasehold

import (
	"context"
	"fmt"
	"math"

	"github.com/leasehold-go/leasehold/internal/check"
)

// Semaphore is a lock with a number of places. Places are leased: a holder that
// dies returns them. Waiters are served in the order of arrival, so that a
// request for many places is not starved by requests for few.
//
// All users of a key at a time state the same limit. A request with another limit, or without
// one as a reader's, is refused with ErrMismatch. A [Mutex] of the same key excludes all
// places, and the other way round.
//
// Places are counted, not re-entered: a Lock under the context of a place takes another
// place. Under the context of a Mutex of the key it shares the mutex's lease. A Semaphore holds
// no state of its own, and is safe for concurrent use.
type Semaphore struct{ request }

// Semaphore returns the semaphore of a key with limit places, 1 to 2^31 - 1; see
// [Client.Mutex].
func (c *Client) Semaphore(key string, limit int, opts ...Option) *Semaphore {
	if err := check.Range("limit", limit, 1, math.MaxInt32); err != nil {
		return &Semaphore{request{err: lockError(key, err)}}
	}
	return &Semaphore{c.lockRequest(key, opts, use{mode: Shared, limit: limit})}
}

// Lock waits for one place; see [Mutex.Lock].
func (s *Semaphore) Lock(ctx context.Context) (*Lease, error) { return s.acquire(ctx, true) }

// TryLock asks once for one place and does not wait.
func (s *Semaphore) TryLock(ctx context.Context) (*Lease, error) { return s.acquire(ctx, false) }

// LockN waits for n places at once, 1 to the limit, which one lease holds.
func (s *Semaphore) LockN(ctx context.Context, n int) (*Lease, error) { return s.Places(n).Lock(ctx) }

// TryLockN asks once for n places and does not wait.
func (s *Semaphore) TryLockN(ctx context.Context, n int) (*Lease, error) {
	return s.Places(n).TryLock(ctx)
}

// Places returns n places, 1 to the limit, as a lock of its own, for [Do], [TryDo] and
// [All]. The first use reports a wrong n.
func (s *Semaphore) Places(n int) *Places {
	p := &Places{s.request}
	if p.weight = n; s.err == nil && (n < 1 || n > s.limit) {
		p.err = lockError(s.key, fmt.Errorf("%d places are not between 1 and the limit %d: %w", n, s.limit, ErrInvalid))
	}
	return p
}

// Places is a number of places of a [Semaphore] as a lock of its own.
type Places struct{ request }

// Lock is [Semaphore.LockN].
func (p *Places) Lock(ctx context.Context) (*Lease, error) { return p.acquire(ctx, true) }

// TryLock is [Semaphore.TryLockN].
func (p *Places) TryLock(ctx context.Context) (*Lease, error) { return p.acquire(ctx, false) }

// Adopt takes over a lease with the places that it has; see [Mutex.Adopt].
func (s *Semaphore) Adopt(ctx context.Context, id string) (*Lease, error) { return s.adopt(ctx, id) }

// Resize puts another limit in force while the semaphore is in use: 1 to 2^31 - 1.
// Holders keep their places, and a place is granted only if there is room by the new limit. From
// then on all users of the key must state the new limit, with a new Semaphore. Requests with
// the old limit fail with ErrMismatch, and so do waiters for more places than there are now. A
// semaphore that is not in use has no limit to change, and Resize has no effect.
//
// A Resize that returns nil has no effect later: an unanswered request of this call can
// no longer undo a later Resize. If the error matches ErrUnknown the limit may have
// changed, and a request may still be on its way. The client withdraws it in the
// background until the store has answered or the client is closed. It does so for at most
// 100 calls of Resize at a time, and for further calls during one minute.
func (s *Semaphore) Resize(ctx context.Context, limit int) error {
	if s.err != nil {
		return s.err
	}
	if err := check.Range("limit", limit, 1, math.MaxInt32); err != nil {
		return lockError(s.key, err)
	}
	if err := s.c.session.Begin(); err != nil {
		return lockError(s.key, err)
	}
	defer s.c.session.Leave()
	r := s.request
	r.limit = limit
	req := r.request()
	req.Resize = true
	if _, err := s.c.session.Change(ctx, &s.cfg.Terms, &req); err != nil {
		return lockError(s.key, fmt.Errorf("resize: %w", err))
	}
	return nil
}
