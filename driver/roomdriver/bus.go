package roomdriver

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
)

// Bus delivers messages within one process. A table that is used by one process
// only becomes a [Notifier] by embedding a *Bus that all its drivers share. The
// zero value is ready for use.
type Bus struct {
	mu    sync.RWMutex // held for reading while a message is delivered
	seats map[string]*seat
}

var _ Notifier = (*Bus)(nil)

// seat is a driver's place for receiving messages.
type seat struct {
	bus     *Bus
	address string

	turn    sync.Mutex
	receive func(body string) // guarded by turn, so that one is called at a time
}

// Listen implements [Listener].
func (b *Bus) Listen(receive func(body string)) (driver.Subscription, error) {
	s := &seat{bus: b, address: rand.Text(), receive: receive}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seats == nil {
		b.seats = make(map[string]*seat)
	}
	b.seats[s.address] = s
	return s, nil
}

// Notify implements [Notifier].
func (b *Bus) Notify(_ context.Context, messages []Message) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, m := range messages {
		if s := b.seats[m.Address]; s != nil {
			s.hear(m.Body)
		} else if m.Address == Everybody {
			for _, s := range b.seats {
				s.hear(m.Body)
			}
		}
	}
	return nil
}

func (s *seat) hear(body string) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.receive(body)
}

// Address implements [driver.Subscription].
func (s *seat) Address() string { return s.address }

// Close implements [driver.Subscription].
func (s *seat) Close() error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	delete(s.bus.seats, s.address)
	return nil
}
