package memdriver

import (
	"strconv"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

type subscription struct {
	store   *Store
	address string

	f      func(driver.Hint)
	queue  []driver.Hint // guarded by store.mu
	active bool          // a goroutine is delivering; guarded by store.mu
	idle   *sync.Cond    // on store.mu
}

// Watch implements [driver.Watcher].
func (s *Store) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	s.nsub++
	sub := &subscription{store: s, address: "mem-" + strconv.Itoa(s.nsub), f: f, idle: sync.NewCond(&s.mu)}
	s.subs[sub.address] = sub
	return sub, nil
}

func (s *subscription) Address() string { return s.address }

func (s *subscription) Close() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.end()
	for s.active {
		s.idle.Wait()
	}
	return nil
}

// end drops what has not been delivered. The caller holds the store's mu.
func (s *subscription) end() {
	delete(s.store.subs, s.address)
	s.queue = nil
}

// deliver hands the hints over in order without running f under the store's
// lock: f may call the store.
func (h *house) deliver(wakes []room.Wake) {
	for _, w := range wakes {
		sub := h.subs[w.Address]
		if sub == nil {
			continue
		}
		sub.queue = append(sub.queue, w.Hint)
		if !sub.active {
			sub.active = true
			go sub.run()
		}
	}
}

func (s *subscription) run() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for len(s.queue) > 0 {
		hint := s.queue[0]
		s.queue = s.queue[1:]
		s.store.mu.Unlock()
		s.f(hint)
		s.store.mu.Lock()
	}
	s.active = false
	s.idle.Broadcast()
}
