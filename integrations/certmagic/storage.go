// Package leaseholdcertmagic adds locks that work across machines to the storage of
// github.com/caddyserver/certmagic.
package leaseholdcertmagic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasehold-go/leasehold"
)

// Prefix is the prefix of the keys of all locks; certmagic's name of the lock follows.
const Prefix = "certmagic/"

// Storage is a storage of certmagic with the locks of Leasehold. It implements
// [certmagic.Storage], [certmagic.TryLocker] and [certmagic.LockLeaseRenewer], and is safe
// for concurrent use.
type Storage struct {
	certmagic.Storage // keeps the certificates
	client            *leasehold.Client
	opts              []leasehold.Option

	mu    sync.Mutex
	names map[string]*name // that are locked, or waited for, in this process
}

var (
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// name is a lock as this process sees it. certmagic unlocks by the name alone, so two of its
// goroutines must not have one name at the same time, even if the first has lost its lease.
type name struct {
	turn  chan struct{} // has an element while a goroutine has the name
	users int           // goroutines that have the name or wait for it; under Storage.mu
	held  holding       // under Storage.mu
}

// holding is a lease, and the function that ends its context. The zero value has no lease.
type holding struct {
	*leasehold.Lease
	end context.CancelCauseFunc
}

func (h holding) release() error {
	defer h.end(nil)
	return h.Release()
}

// Wrap returns a storage that keeps certificates in storage and ignores its locks. All processes
// that share storage need the same locks: a client of the same store. The options are as for
// [leasehold.Client.Mutex]. A lock waits for a store that is away for as long as its context
// lives, unless [leasehold.WithMaxOutage] is given: certmagic does not try again to obtain a
// certificate after its lock has failed.
func Wrap(storage certmagic.Storage, client *leasehold.Client, opts ...leasehold.Option) *Storage {
	opts = slices.Concat([]leasehold.Option{leasehold.WithMaxOutage(-1)}, opts)
	return &Storage{Storage: storage, client: client, opts: opts, names: make(map[string]*name)}
}

// Lock implements [certmagic.Locker]. ctx bounds the wait but not the lease, which is renewed
// until Unlock.
func (s *Storage) Lock(ctx context.Context, key string) error {
	n := s.use(key)
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		s.leave(key)
		return fmt.Errorf("lock %q, which this process has: %w", key, context.Cause(ctx))
	}
	held, err := s.take(ctx, key, (*leasehold.Mutex).Lock)
	if err != nil {
		<-n.turn
		s.leave(key)
		return err
	}
	s.replace(n, holding{}, held)
	return nil
}

// TryLock implements [certmagic.TryLocker]. It asks once; ctx bounds the request.
func (s *Storage) TryLock(ctx context.Context, key string) (bool, error) {
	n := s.use(key)
	select {
	case n.turn <- struct{}{}:
	default:
		s.leave(key)
		return false, nil
	}
	held, err := s.take(ctx, key, (*leasehold.Mutex).TryLock)
	if err == nil {
		s.replace(n, holding{}, held)
		return true, nil
	}
	<-n.turn
	s.leave(key)
	if errors.Is(err, leasehold.ErrHeld) && ctx.Err() == nil {
		return false, nil
	}
	return false, err
}

// RenewLockLease implements [certmagic.LockLeaseRenewer], which certmagic calls before each of
// its attempts. The lease is renewed anyway, for its TTL and not for d, since d would also be the
// time for which a crash keeps the lock closed. A lost lock is taken again if it is free:
// otherwise certmagic would repeat attempts that cannot succeed for thirty days. The error
// matches [leasehold.ErrHeld] if the lock is held elsewhere.
func (s *Storage) RenewLockLease(ctx context.Context, key string, _ time.Duration) error {
	n, lost := s.held(key)
	switch {
	case lost.Lease == nil:
		return fmt.Errorf("renew lock %q: %w", key, leasehold.ErrNotHeld)
	case lost.State().Live():
		return nil
	}
	taken, err := s.take(ctx, key, (*leasehold.Mutex).TryLock)
	if err != nil {
		return err
	}
	if !s.replace(n, lost, taken) { // Unlock has already been called
		_ = taken.release()
		return fmt.Errorf("renew lock %q: unlocked during the renewal: %w", key, leasehold.ErrNotHeld)
	}
	_ = lost.release()
	return nil
}

// Unlock implements [certmagic.Locker]. It ignores ctx. The error matches
// [leasehold.ErrLost] if the work had not been protected to its end.
func (s *Storage) Unlock(_ context.Context, key string) error {
	s.mu.Lock()
	n := s.names[key]
	if n == nil || n.held.Lease == nil {
		s.mu.Unlock()
		return fmt.Errorf("unlock %q: %w", key, leasehold.ErrNotHeld)
	}
	held := n.held
	n.held = holding{}
	s.mu.Unlock()
	err := held.release()
	<-n.turn
	s.leave(key)
	return err
}

// take takes the lock under a context of its own. ctx bounds only the wait.
func (s *Storage) take(ctx context.Context, key string, lock func(*leasehold.Mutex, context.Context) (*leasehold.Lease, error)) (holding, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	lease, err := lock(s.client.Mutex(Prefix+key, s.opts...), life)
	if !stop() { // the lease ends with life
		err = errors.Join(err, context.Cause(ctx))
		if lease != nil {
			_ = lease.Release()
		}
	}
	if err != nil {
		end(nil)
		return holding{}, err
	}
	return holding{lease, end}, nil
}

// replace replaces the holding before by next, if the name still has before.
func (s *Storage) replace(n *name, before, next holding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.held.Lease != before.Lease {
		return false
	}
	n.held = next
	return true
}

// use returns a name and keeps it until leave.
func (s *Storage) use(key string) *name {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[key]
	if n == nil {
		n = &name{turn: make(chan struct{}, 1)}
		s.names[key] = n
	}
	n.users++
	return n
}

func (s *Storage) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.names[key]; n.users > 1 {
		n.users--
	} else {
		delete(s.names, key)
	}
}

// held returns the holding of a name in this process.
func (s *Storage) held(key string) (*name, holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[key]
	if n == nil {
		return nil, holding{}
	}
	return n, n.held
}
