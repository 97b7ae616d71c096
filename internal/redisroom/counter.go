package redisroom

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// A room's fencing counter lives for an hour from its seeding, and a seed is the
// server's clock in µs. A lone holder's token stands nowhere else, so the
// counter must outlive the lease. Whether it will is told by the token itself,
// which is hardly above its seed: no command is spent on it. A lease whose token
// is old by the server's clock is turned into a record by a second call; the
// counter is seeded anew when the record is folded, so that for one key this
// happens once in half an hour. A reading of the clock is enough: the time since
// then is measured here, monotonically.
const (
	// young counters have at least half of their hour before them. More than
	// one grant per µs is impossible, so that even a counter that never rests
	// keeps minutes of it.
	young = 30 * time.Minute
	// longTTL is the longest lease that a young counter is sure to outlive.
	longTTL = 15 * time.Minute
	// readingLife is how long a reading of the server's clock is used: the
	// server may be another by now, or its clock may have been stepped.
	readingLife = 10 * time.Minute
	// anyAge is above every token: any counter may end too early. One that is
	// given by the next grant is then seeded anew.
	anyAge = 1 << 53
)

// serverClock is a reading of the server's clock, if there is one.
type serverClock struct{ last atomic.Pointer[reading] }

type reading struct {
	at time.Time // before the request was sent
	us int64
	// changes is that of the client before the request was sent, and floor the
	// first reading since it has this value. A server that was restarted with
	// old data, or a replica that took over, has counters that fell back; but
	// whatever was granted before we were connected to it is below floor.
	changes uint64
	floor   int64
}

// floor returns the token above which a counter cannot have fallen back; false
// if that is not known, because the server may be another by now.
func (c *serverClock) floor(changes uint64) (int64, bool) {
	r := c.last.Load()
	if r == nil || r.changes != changes {
		return 0, false
	}
	return r.floor, true
}

// oldest returns the greatest token whose counter may end before a lease of the
// given TTL.
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

// learn takes the reading that an acquire has brought, if any: the clock of a
// general reply, or the token of a counter that was seeded by it.
func (c *serverClock) learn(sent time.Time, changes uint64, reply *driver.Reply) {
	us := reply.Clock.Microseconds()
	if reply.Alone {
		us = reply.Token
	}
	if us <= 0 {
		return
	}
	floor, known := c.floor(changes)
	if !known {
		floor = us
	}
	c.last.Store(&reading{at: sent, us: us, changes: changes, floor: floor})
}

// serverClocks are those of all servers of a store: one, or one for each slot
// of a cluster, whose nodes have clocks of their own.
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

// lowTokens are the leases whose token has to be raised before anybody sees it.
// There are none but after a change of servers.
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
