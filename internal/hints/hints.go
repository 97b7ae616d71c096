// Package hints delivers hints to the subscriptions of one process. A store sends a
// hint to an address; the part of the address that names the process belongs to the store,
// and the number after it is the number of a subscription here. Hints for everybody go to
// all subscriptions of all processes.
package hints

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
)

// Subscriptions holds the subscriptions of one driver, by their numbers. Its methods are
// safe for concurrent use. The zero value is ready.
type Subscriptions struct {
	mu       sync.Mutex
	closed   bool
	last     int // number that was given out
	byNumber map[string]*Subscription
}

// Subscription is one function that hints are delivered to, one at a time and in order.
type Subscription struct {
	all    *Subscriptions
	number string
	f      func(driver.Hint)

	// These are guarded by all.mu.
	queue  []driver.Hint
	active bool       // a goroutine is delivering
	idle   *sync.Cond // signalled when active becomes false
}

// Add subscribes f. It fails with [driver.ErrClosed] after Close.
func (s *Subscriptions) Add(f func(driver.Hint)) (*Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	s.last++
	sub := &Subscription{all: s, number: strconv.Itoa(s.last), f: f, idle: sync.NewCond(&s.mu)}
	if s.byNumber == nil {
		s.byNumber = make(map[string]*Subscription)
	}
	s.byNumber[sub.number] = sub
	return sub, nil
}

// Deliver sends a hint to the subscription of that number, if there is one. It does not
// wait for its function.
func (s *Subscriptions) Deliver(number string, h driver.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.byNumber[number]; sub != nil {
		sub.push(h)
	}
}

// DeliverAll sends a hint to all subscriptions.
func (s *Subscriptions) DeliverAll(h driver.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.byNumber {
		sub.push(h)
	}
}

// Resync informs every subscription that hints may have been lost.
func (s *Subscriptions) Resync() { s.DeliverAll(driver.Hint{Kind: driver.HintResync}) }

// Close ends all subscriptions as [Subscription.Close] does each.
func (s *Subscriptions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, sub := range slices.Collect(maps.Values(s.byNumber)) {
		sub.end()
	}
}

// Number returns the subscription's part of an address.
func (s *Subscription) Number() string { return s.number }

// Close ends the subscription, drops hints that were not delivered, and waits for a call
// of the function that is under way.
func (s *Subscription) Close() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.end()
}

// end is Close. The caller holds all.mu, which end unlocks while it waits.
func (s *Subscription) end() {
	delete(s.all.byNumber, s.number)
	s.queue = nil
	for s.active {
		s.idle.Wait()
	}
}

// push queues a hint. The function is called without the lock, since it may call the
// driver. The caller holds all.mu.
func (s *Subscription) push(h driver.Hint) {
	s.queue = append(s.queue, h)
	if !s.active {
		s.active = true
		go s.run()
	}
}

func (s *Subscription) run() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	for len(s.queue) > 0 {
		h := s.queue[0]
		s.queue = s.queue[1:]
		s.all.mu.Unlock()
		s.f(h)
		s.all.mu.Lock()
	}
	s.active = false
	s.idle.Broadcast()
}
