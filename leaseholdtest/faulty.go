package leaseholdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

var (
	errDown      = fmt.Errorf("%w: the test has stopped the store", driver.ErrUnavailable)
	errReplyLost = errors.New("the test has lost the store's reply")
)

// faulty is the store as one client reaches it.
type faulty struct {
	*intercept.Driver
	store *Store
}

// through passes a message to a store that answers, and loses the answer to a change.
func (s *Store) through(ctx context.Context, m *intercept.Message, send func(context.Context) error) error {
	if m.Verb == intercept.Close {
		return send(ctx)
	}
	if err := s.reach(ctx); err != nil {
		return err
	}
	err := send(ctx)
	switch m.Verb {
	case intercept.Acquire, intercept.Renew, intercept.Release:
		if err == nil && s.lost() {
			return errReplyLost
		}
	}
	return err
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
	sub, err := f.Driver.Watch(func(h driver.Hint) {
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
