package leaseholdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
)

var (
	errDown      = fmt.Errorf("%w: the test has stopped the store", driver.ErrUnavailable)
	errReplyLost = errors.New("the test has lost the store's reply")
)

// faulty is the store as one client reaches it.
type faulty struct {
	driver.Wrapper
	store *Store
}

// reach returns when the store takes a request.
func (s *Store) reach(ctx context.Context) error {
	for {
		s.mu.Lock()
		state, back := s.state, s.back
		s.mu.Unlock()
		switch state {
		case up:
			return nil
		case down:
			return errDown
		}
		select {
		case <-back:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lost reports whether the reply to a request is lost.
func (s *Store) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop == 0 {
		return false
	}
	s.drop--
	return true
}

// Acquire implements [driver.Driver].
func (f *faulty) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := f.store.reach(ctx); err != nil {
		return driver.Reply{}, err
	}
	reply, err := f.Driver.Acquire(ctx, req)
	if err == nil && f.store.lost() {
		return driver.Reply{}, errReplyLost
	}
	return reply, err
}

// Renew implements [driver.Driver].
func (f *faulty) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if err := f.store.reach(ctx); err != nil {
		for i := range refs {
			each(i, driver.Reply{}, err)
		}
		return
	}
	f.Driver.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
		if err == nil && f.store.lost() {
			reply, err = driver.Reply{}, errReplyLost
		}
		each(i, reply, err)
	})
}

// Release implements [driver.Driver].
func (f *faulty) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if err := f.store.reach(ctx); err != nil {
		return driver.Reply{}, err
	}
	reply, err := f.Driver.Release(ctx, ref)
	if err == nil && f.store.lost() {
		return driver.Reply{}, errReplyLost
	}
	return reply, err
}

// listener is a subscription of one client.
type listener struct {
	driver.Subscription
	store *Store

	mu   sync.Mutex // hints come one at a time
	hint func(driver.Hint)
}

func (l *listener) tell(h driver.Hint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hint(h)
}

// Close implements [driver.Subscription].
func (l *listener) Close() error {
	l.store.mu.Lock()
	l.store.listeners = slices.DeleteFunc(l.store.listeners, func(other *listener) bool { return other == l })
	l.store.mu.Unlock()
	return l.Subscription.Close()
}

// Watch implements [driver.Watcher]. A store that does not answer wakes no waiter.
func (f *faulty) Watch(hint func(driver.Hint)) (driver.Subscription, error) {
	s := f.store
	l := &listener{store: s, hint: hint}
	inner, _ := driver.As[driver.Watcher](f.Driver)
	sub, err := inner.Watch(func(h driver.Hint) {
		s.mu.Lock()
		answers := s.state == up
		s.mu.Unlock()
		if answers {
			l.tell(h)
		}
	})
	if err != nil {
		return nil, err
	}
	l.Subscription = sub
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
	return l, nil
}

// Inspect implements [driver.Inspector].
func (f *faulty) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if err := f.store.reach(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	return f.store.inner.Inspect(ctx, key)
}

// Glance implements [driver.Glancer].
func (f *faulty) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	if err := f.store.reach(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	return f.store.inner.Glance(ctx, key)
}

// List implements [driver.Inspector].
func (f *faulty) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	if err := f.store.reach(ctx); err != nil {
		return nil, "", err
	}
	return f.store.inner.List(ctx, prefix, cursor)
}

// Break implements [driver.Breaker].
func (f *faulty) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	if err := f.store.reach(ctx); err != nil {
		return driver.Reply{}, err
	}
	return f.store.inner.Break(ctx, key, id, reason)
}
