package operations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Pattern is a way to take a lock for an operation.
type Pattern struct {
	Name, Summary string
	// take acquires the lock in the way of the pattern.
	take func(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error)
	// do runs the operation under the lease; nil is the operation itself.
	do func(ctx context.Context, r *Runner, lease *leasehold.Lease) error
}

// Patterns returns all patterns.
func Patterns() []Pattern {
	return []Pattern{
		{Name: "simple", Summary: "under a lock that is held or refused at once, for a fixed time", take: takeSimple},
		{Name: "redlock", Summary: "under a lock of a majority of stores, or refused at once", take: takeRedlock},
		{Name: "retry", Summary: "under a lock that is asked for again with growing delays", take: takeRetry},
		{Name: "watchdog", Summary: "under a lock that is renewed while the operation runs", take: takeWatchdog},
		{Name: "reentrant", Summary: "under a lock that its owner takes twice", take: takeWatchdog, do: twice},
		{Name: "read", Summary: "together with other readers", take: takeRead},
		{Name: "write", Summary: "with no reader and no other writer", take: takeWrite},
		{Name: "fair", Summary: "when its turn has come: first come, first served", take: takeFair},
	}
}

// fixed makes a lease that lasts as long as the operation, with time to spare,
// and is not renewed, so that waiters see the end of the operation as the end of the lease.
// The lease of an operation of unknown length is renewed.
func (r *Runner) fixed() []leasehold.Option {
	length := r.cfg.Operation.Length
	if length <= 0 {
		return r.renewing()
	}
	ttl := length + length/20 + time.Second
	return []leasehold.Option{leasehold.WithTTL(min(ttl, leasehold.MaxTTL)), leasehold.WithoutRenewal()}
}

func (r *Runner) renewing() []leasehold.Option {
	return []leasehold.Option{leasehold.WithTTL(r.cfg.TTL)}
}

func takeSimple(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	return r.client.Mutex(key, r.fixed()...).TryLock(ctx)
}

// takeRedlock also wraps ErrNoQuorum if a single store does not answer, as a quorum would.
func takeRedlock(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	lease, err := r.redlock.Mutex(key, r.fixed()...).TryLock(ctx)
	if errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrUnknown) {
		err = fmt.Errorf("%w: %w", leasehold.ErrNoQuorum, err)
	}
	return lease, err
}

// retries is the back-off of the pattern retry: some 5 s in total.
var retries = leasehold.Backoff{Base: 100 * time.Millisecond, Factor: 2, Cap: time.Second, Jitter: 0.5, Attempts: 8}

func takeRetry(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	return r.client.Mutex(key, append(r.renewing(), leasehold.WithRetry(retries))...).Lock(ctx)
}

func takeWatchdog(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	return r.client.Mutex(key, r.renewing()...).TryLock(ctx)
}

// twice takes the lock a second time under its own lease, like a called function that does
// not know of the first.
func twice(ctx context.Context, r *Runner, lease *leasehold.Lease) error {
	inner, err := r.client.Mutex(lease.Key(), r.renewing()...).TryLock(ctx)
	if err != nil {
		return err
	}
	err = r.cfg.Operation.Do(inner.Context(), inner)
	return oneline.Join(err, inner.Release())
}

func takeRead(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	return r.client.RWMutex(key, r.renewing()...).TryRLock(ctx)
}

func takeWrite(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	return r.client.RWMutex(key, r.renewing()...).TryLock(ctx)
}

func takeFair(ctx context.Context, r *Runner, key string) (*leasehold.Lease, error) {
	return r.client.Mutex(key, append(r.renewing(), leasehold.WithMaxWait(r.cfg.Wait))...).Lock(ctx)
}
