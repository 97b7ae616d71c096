package redisroom

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// The fencing counter of a lock lives for an hour from its seeding (lua/room/life.lua). A
// seed is the server's clock in µs. The token of an uncontended lease is stored only in the
// counter, so the counter must outlive the lease. No command is needed to check that: the
// token is hardly above its seed, so it shows the counter's age. A request contains the
// token above which a counter is young enough, and the script seeds older counters again.
// One reading of the server's clock suffices, because the time since then is measured
// here, monotonically.
const (
	// A young counter has at least half of its hour left. More than one grant per µs is
	// impossible, so even a counter that is always in use keeps minutes of it.
	young = 30 * time.Minute
	// longTTL is the longest lease that a young counter certainly outlives.
	longTTL = 15 * time.Minute
	// readingLife is how long a reading of the server's clock is used: later the
	// server may be another one, or its clock may have been stepped.
	readingLife = 10 * time.Minute
	// silence is how long a reading is valid without an answer of the server: the
	// server may have become a replica, on the same connection.
	silence = time.Second
	// anyAge is above every token: any counter may end too early, or have fallen back,
	// so the next grant seeds it.
	anyAge = 1 << 53
)

// serverClock is a reading of the server's clock, if there is one.
type serverClock struct {
	last atomic.Pointer[reading]
	// heard is when the last answered request was sent, in ns since began.
	heard atomic.Int64
}

// reading is a reading of the server's clock. The counters of a server that was restarted
// with old data, or of a promoted replica, have fallen back. But a token that was given
// before the reading is below it, and one that was given since is above it.
type reading struct {
	at time.Time // before the request was sent
	us int64
	// changes is that of the client before the request was sent.
	changes uint64
}

// began is the origin of serverClock.heard.
var began = clock.Now()

// least returns the token above which a counter has not fallen back, and does not end
// before a lease of the given TTL, for a request that is sent now.
func (c *serverClock) least(now time.Time, ttl time.Duration, changes uint64) int64 {
	r := c.last.Load()
	if r == nil || r.changes != changes || now.Sub(began)-time.Duration(c.heard.Load()) > silence {
		return anyAge
	}
	return max(r.us, c.oldest(now, ttl))
}

// oldest returns the greatest token whose counter may end before a lease of the given
// TTL.
func (c *serverClock) oldest(now time.Time, ttl time.Duration) int64 {
	r := c.last.Load()
	if r == nil || ttl > longTTL {
		return anyAge
	}
	passed := now.Sub(r.at)
	if passed > readingLife {
		return anyAge
	}
	return r.us + (passed - young).Microseconds()
}

// learn stores the reading that an acquire has brought.
func (c *serverClock) learn(sent time.Time, changes uint64, clock time.Duration) {
	if us := clock.Microseconds(); us > 0 {
		c.last.Store(&reading{at: sent, us: us, changes: changes})
	}
}

// serverClocks holds the clocks of a store's servers: one, or one for each slot of a
// cluster, because its nodes have separate clocks.
type serverClocks struct {
	single serverClock
	once   sync.Once
	bySlot []serverClock
}

// clock returns the clock of the server that keeps the key.
func (s *Store) clock(key string) *serverClock {
	if !s.main.Cluster() {
		return &s.clocks.single
	}
	s.clocks.once.Do(func() { s.clocks.bySlot = make([]serverClock, slots) })
	return &s.clocks.bySlot[Slot(s.prefix+key)]
}

// least is serverClock.least, except on a cluster. There a node may take over from
// another without a new connection or a redirection, so a reading may be another node's:
// every grant is seeded.
func (s *Store) least(server *serverClock, now time.Time, ttl time.Duration, changes uint64) int64 {
	if s.main.Cluster() {
		return anyAge
	}
	return server.least(now, ttl, changes)
}

// forgetClock forgets the server's clock after an error that may come from another server, or
// from another role of the same one.
func (s *Store) forgetClock(err error) {
	switch err = classify(err); {
	case err == nil, s.main.Cluster():
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrAmnesia):
	default:
		s.clocks.single.last.Store(nil)
	}
}

// lowTokens holds leases whose token must be raised before a caller sees it. It is empty
// except after a change of servers.
type lowTokens struct {
	n atomic.Int64

	mu  sync.Mutex
	ids map[string]struct{}
}

func (l *lowTokens) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ids == nil {
		l.ids = make(map[string]struct{})
	}
	l.ids[id] = struct{}{}
	l.n.Store(int64(len(l.ids)))
}

func (l *lowTokens) has(id string) bool {
	if l.n.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.ids[id]
	return ok
}

func (l *lowTokens) remove(id string) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ids, id)
	l.n.Store(int64(len(l.ids)))
}
