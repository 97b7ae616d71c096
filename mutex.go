package leasehold

import (
	"cmp"
	"context"
	"fmt"
)

// Mutex is an exclusive lock: one lease at a time. It holds no state of its
// own, so that any number of Mutex values of one key are the same lock, and is
// safe for concurrent use.
//
// Waiting is in the order of arrival at the store. A Lock of the same key under
// a lease's context, or by the same
// [WithReentrantOwner], re-enters.
type Mutex struct{ request }

// Mutex returns the exclusive lock of a key: 1 to 512 bytes of UTF-8 without
// control characters. The first use of the lock reports a wrong key or option, before
// anything is asked of the store.
func (c *Client) Mutex(key string, opts ...Option) *Mutex {
	return &Mutex{c.lockRequest(key, opts, use{mode: Exclusive})}
}

// Lock waits until the mutex is free, and returns a lease. When ctx ends, a Lock that waits
// fails. The context of a lease that was granted ends, so that the work can wind down: the next
// renewal is the last, and the lock stays closed until [Lease.Release], or until the lease
// expires. [WithMaxWait] bounds the wait alone:
//
//	mutex := client.Mutex("orders/42", leasehold.WithMaxWait(5*time.Second))
//	lease, err := mutex.Lock(ctx) // waits for 5 s, and holds for as long as ctx lives
//
// If the wait ends first the error is a [*HeldError]: it matches ErrHeld and the error of
// ctx, or [context.DeadlineExceeded] at the maximum wait. Lock also waits for a store
// that is away, for at most [WithMaxOutage]. If the wait ends while the store is away, the
// error matches ErrUnknown: the store did not answer, or it refuses but has a place for
// this call in its queue, and may hand the lock over. It matches ErrUnavailable if the
// request certainly had no effect. In all cases the client undoes in the background a request
// that may have had an effect.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, true) }

// TryLock asks once and does not wait for the mutex. If it is held, or has waiters, the error is
// a [*HeldError]. The other errors are as for Lock. TryLock does not wait for a store that is
// away: see [WithMaxOutage].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, false) }

// Adopt takes over a lease that was left in the store: by [Lease.Detach], by
// `leasehold acquire`, or through the service. id is its [Lease.ID]. The lease is
// renewed at once, for the TTL of this lock unless it lasts longer, keeps its token,
// and is from then on as one that Lock has returned: its context derives from ctx.
// Its owner and labels in the store do not change, and [Lease.Owner] returns the owner that the
// store shows, so that package fence accepts the lease as the same holder. If this client cannot
// inspect the store, Lease.Owner returns the owner of this lock; with fencing, make it equal to
// the previous owner by [WithName] or [WithReentrantOwner].
//
// The caller must make sure that no other process uses the lease: two processes that renew and
// use one lease do not exclude each other.
//
// The error matches ErrNotHeld if the lease has ended, is of another key, or was
// never there; ErrBroken, too, if it was broken; ErrMismatch if it is of another
// kind, as far as the store can be inspected, or is held by this client; ErrInvalid
// if the id is malformed; and ErrUnknown if the store did not answer for 10 s, or for
// [WithMaxOutage] if that is less. The lease is then unchanged, or was renewed once.
func (m *Mutex) Adopt(ctx context.Context, id string) (*Lease, error) { return m.adopt(ctx, id) }

// RWMutex is a shared and exclusive lock: any number of readers, or one writer.
// Its write side and a [Mutex] of the same key are the same lock. Every reader
// has a lease, a token and an expiry of its own.
//
// Waiters are served in the order of arrival, where readers that are neighbours in the
// queue are admitted together, unless [WithPolicy] sets another order. An RWMutex holds no state
// of its own, and is safe for concurrent use.
type RWMutex struct{ write, read request }

// RWMutex returns the read-write lock of a key; see [Client.Mutex].
func (c *Client) RWMutex(key string, opts ...Option) *RWMutex {
	m := &RWMutex{
		write: c.lockRequest(key, opts, use{mode: Exclusive, readers: true}),
		read:  c.lockRequest(key, opts, use{mode: Shared, readers: true}),
	}
	m.write.err = cmp.Or(m.write.err, m.read.err)
	m.read.err = m.write.err
	return m
}

// Lock waits until there is no reader and no writer, like [Mutex.Lock]. Under the context
// of a read lease of the same key it fails with ErrMismatch instead of waiting
// for itself: a read lease cannot be upgraded.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.write.acquire(ctx, true) }

// TryLock asks once for the write side and does not wait.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.write.acquire(ctx, false) }

// RLock waits until there is no writer, and until the waiters that the lock's policy prefers
// have been served. The errors are as for [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.read.acquire(ctx, true) }

// TryRLock asks once for the read side and does not wait.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return m.read.acquire(ctx, false) }

// Adopt takes over the lease of a writer; see [Mutex.Adopt].
func (m *RWMutex) Adopt(ctx context.Context, id string) (*Lease, error) {
	return m.write.adopt(ctx, id)
}

// RAdopt takes over the lease of a reader; see [Mutex.Adopt].
func (m *RWMutex) RAdopt(ctx context.Context, id string) (*Lease, error) {
	return m.read.adopt(ctx, id)
}

// RLocker returns the read side as a lock of its own, for [Do], [TryDo] and [All].
func (m *RWMutex) RLocker() *RLocker { return &RLocker{&m.read} }

// RLocker is the read side of an [RWMutex] as a lock of its own.
type RLocker struct{ read *request }

// Lock is [RWMutex.RLock].
func (r *RLocker) Lock(ctx context.Context) (*Lease, error) { return r.read.acquire(ctx, true) }

// TryLock is [RWMutex.TryRLock].
func (r *RLocker) TryLock(ctx context.Context) (*Lease, error) { return r.read.acquire(ctx, false) }

// Downgrade turns the lease of a writer into that of a reader in one step, so that no
// other writer is admitted in between; waiting readers may be admitted at once. Token and context stay,
// and the lease is renewed in the same step.
//
// From the call on, a Lock to write under the lease's context fails with ErrMismatch, as under a
// reader's lease.
//
// The error matches ErrMismatch if the lease is a reader's, is shared by re-entry,
// or is being detached; ErrNotHeld if it has ended; and ErrUnknown if the store did not
// answer. The lease is then valid for reading only, until Downgrade is repeated or the lease
// is released. After any other error it is still a writer's lease;
// one such error is ErrUnavailable, while a transaction pins the lock (see package
// postgresdriver).
func (l *Lease) Downgrade(ctx context.Context) error {
	h := l.hold
	err := h.lower()
	if err == nil {
		r := request{c: h.c, cfg: h.cfg, key: h.Key(), mode: Shared, policy: h.cfg.policy}
		err = h.Downgrade(ctx, r.request())
	}
	if err != nil {
		return lockError(h.Key(), fmt.Errorf("downgrade: %w", err))
	}
	return nil
}
