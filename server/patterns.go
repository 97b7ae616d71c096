package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// fixed makes a lease that lasts as long as the operation, with time to spare,
// and is not renewed: what the others are told to wait for is then the end of
// the operation. An operation of unknown length is renewed.
func (s *Server) fixed() []leasehold.Option {
	length := s.cfg.operation.Length
	if length <= 0 {
		return s.renewing()
	}
	ttl := length + length/20 + time.Second
	return []leasehold.Option{leasehold.WithTTL(min(ttl, leasehold.MaxTTL)), leasehold.WithoutRenewal()}
}

func (s *Server) renewing() []leasehold.Option {
	return []leasehold.Option{leasehold.WithTTL(s.cfg.operationTTL)}
}

func takeSimple(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	return s.client.Mutex(key, s.fixed()...).TryLock(ctx)
}

// takeRedlock says of a single store that does not answer what it would say of
// a majority.
func takeRedlock(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	lease, err := s.redlock.Mutex(key, s.fixed()...).TryLock(ctx)
	if errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrUnknown) {
		err = fmt.Errorf("%w: %w", leasehold.ErrNoQuorum, err)
	}
	return lease, err
}

// retries is how the pattern retry asks again: for some 5 s altogether.
var retries = leasehold.Backoff{Base: 100 * time.Millisecond, Factor: 2, Cap: time.Second, Jitter: 0.5, Attempts: 8}

func takeRetry(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	return s.client.Mutex(key, append(s.renewing(), leasehold.WithRetry(retries))...).Lock(ctx)
}

func takeWatchdog(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	return s.client.Mutex(key, s.renewing()...).TryLock(ctx)
}

// twice takes the lock once more under its own lease, as a function does that
// is called under it and does not know.
func twice(ctx context.Context, s *Server, lease *leasehold.Lease) error {
	inner, err := s.client.Mutex(lease.Key(), s.renewing()...).TryLock(ctx)
	if err != nil {
		return err
	}
	err = s.cfg.operation.Do(inner.Context(), inner)
	return oneline.Join(err, inner.Release())
}

func takeRead(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	return s.client.RWMutex(key, s.renewing()...).TryRLock(ctx)
}

func takeWrite(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	return s.client.RWMutex(key, s.renewing()...).TryLock(ctx)
}

func takeFair(ctx context.Context, s *Server, key string) (*leasehold.Lease, error) {
	return s.client.Mutex(key, append(s.renewing(), leasehold.WithMaxWait(s.cfg.operationWait))...).Lock(ctx)
}
