package server

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/leasehold-go/leasehold/driver"
)

// lone remembers of each lock whether nobody but its holder was about when it
// was last acquired or waited for: a release is told so, and costs the store
// less then ([driver.Ref.Uncontended]). A request knows of no other, and a lock may be
// in use by way of another replica, so this is a guess. A wrong one costs a call
// of the store more. Locks share places.
type lone struct {
	seed   maphash.Seed
	places [1024]atomic.Bool
}

func newLone() *lone { return &lone{seed: maphash.MakeSeed()} }

func (l *lone) of(key string) *atomic.Bool {
	return &l.places[maphash.String(l.seed, key)%uint64(len(l.places))]
}

// hear takes note of the answer to an acquire.
func (l *lone) hear(key string, got *driver.Reply) {
	switch got.State {
	case driver.Granted, driver.Queued, driver.Busy:
		if place := l.of(key); place.Load() != got.Uncontended {
			place.Store(got.Uncontended)
		}
	}
}

// holds reports whether the holder of a lock is likely to be alone.
func (l *lone) holds(key string) bool { return l.of(key).Load() }
