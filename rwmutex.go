package leasehold

import (
	"context"
	"fmt"

	"github.com/leasehold-go/leasehold/driver"
)

// RWMutex is a shared and exclusive lock: any number of readers, or one writer.
// Its write side and a [Mutex] of the same key are the same lock. Every reader
// has a lease, a token and an expiry of its own.
//
// Who is let pass is said by an option: in the order of arrival by default,
// where readers that are neighbours in the queue enter together; see
// [WithWritersFirst] and [WithReadersFirst].
type RWMutex struct {
	write, read request
	err         error
}

// RWMutex returns the read-write lock of a key; see [Client.Mutex].
func (c *Client) RWMutex(key string, opts ...Option) *RWMutex {
	write, err := c.lockRequest(key, opts, driver.Exclusive, 0)
	if err != nil {
		return &RWMutex{err: err}
	}
	read, err := c.lockRequest(key, opts, driver.Shared, 0)
	return &RWMutex{write: write, read: read, err: err}
}

// Lock waits until nobody reads or writes, like [Mutex.Lock]. Under the context
// of a read lease of the same key it fails with ErrMismatch instead of waiting
// for itself: a read lease cannot be upgraded.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.write, true) }

// TryLock asks once for the write side and does not wait.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.write, false) }

// RLock waits until nobody writes, and, by the lock's policy, whoever is to be
// let pass has been served. Errors are those of [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.read, true) }

// TryRLock asks once for the read side and does not wait.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.read, false) }

func (m *RWMutex) take(ctx context.Context, side *request, wait bool) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	return side.acquire(ctx, wait)
}

// Reader returns the read side as a [Locker], for [Do] and [All].
func (m *RWMutex) Reader() Locker { return (*reader)(m) }

type reader RWMutex

func (r *reader) Lock(ctx context.Context) (*Lease, error) { return (*RWMutex)(r).RLock(ctx) }

// Downgrade turns the lease of a writer into that of a reader in one step, so
// that no other writer slips in; readers that wait may enter at once. Token,
// context and deadline stay, and the lease is renewed by the way.
//
// The error matches ErrMismatch if the lease is a reader's, or is shared by
// re-entry; ErrNotHeld if it has ended; and ErrUnknown if the store did not
// answer, whereupon the lease is valid as one or the other. It may be repeated.
func (l *Lease) Downgrade(ctx context.Context) error {
	if l.parts != nil {
		return lockError(l.Key(), fmt.Errorf("downgrade of several locks at once: %w", ErrMismatch))
	}
	if err := l.hold.downgrade(ctx); err != nil {
		return lockError(l.hold.key, fmt.Errorf("downgrade: %w", err))
	}
	return nil
}

func (h *hold) downgrade(ctx context.Context) error {
	if !h.live() {
		return h.notHeld()
	}
	h.mu.Lock()
	mode, leases, ttl := h.mode, len(h.leases), h.ttl
	h.mu.Unlock()
	if mode == driver.Shared {
		return fmt.Errorf("a reader's lease: %w", ErrMismatch)
	}
	if leases > 1 {
		return fmt.Errorf("held %d times: %w", leases, ErrMismatch)
	}
	r := request{c: h.c, cfg: h.cfg, key: h.key, mode: driver.Shared, policy: h.cfg.policy}
	req := r.request()
	req.ID, req.TTL, req.Notify = h.id, ttl, h.c.address()
	sent := h.c.now()
	reply, err := h.c.drv.Acquire(ctx, req)
	switch {
	case err != nil:
		return unknown(err)
	case reply.State != driver.Granted || reply.Token != h.token:
		// Not ours any more. What was granted afresh is not this lease.
		h.c.abandon(ctx, h.cfg, &req, false)
		h.mu.Lock()
		if h.ended == nil {
			h.end(errGone)
		} else {
			h.mu.Unlock()
		}
		return h.notHeld()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mode = driver.Shared
	if h.ended == nil {
		h.deadline = max(h.deadline, h.c.instant(h.cfg.deadline(sent, ttl)))
	}
	return nil
}

// errUpgrade is told to who asks for the write side under a read lease.
var errUpgrade = fmt.Errorf("a read lease cannot be upgraded; release it first: %w", ErrMismatch)
