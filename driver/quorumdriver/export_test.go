package quorumdriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Pending returns the number of hints that a subscription keeps until more nodes confirm them.
func Pending(s driver.Subscription) int {
	sub := s.(*subscription)
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return len(sub.pending)
}

// Settle waits until all background work of earlier calls has ended.
func (s *Driver) Settle() {
	for s.unsettled() {
		time.Sleep(100 * time.Microsecond)
	}
}

func (s *Driver) unsettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		if l.users > 0 {
			return true
		}
	}
	return false
}

// TakeTurn takes the turn of a lease that no call asks for.
func (s *Driver) TakeTurn(ctx context.Context) error {
	return (&lease{s: s, turn: make(chan struct{}, 1)}).takeTurn(ctx)
}

// Remembered returns the number of leases that the driver remembers.
func (s *Driver) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leases)
}
