package redisroom

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// A room's fencing counter lives for an hour from its seeding (lua/room/life.lua), and a
// seed is the server's clock in µs. A lone holder's token stands nowhere else, so
// the counter must outlive the lease. Whether it will is told by the token itself,
// which is hardly above its seed: no command is spent on it. A request says above
// which token a counter is young enough, and where it is not, the script seeds it
// anew. A reading of the clock is enough to say so: the time since then is measured
// here, monotonically.
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
	// silence is how long a reading counts without an answer of the server: it may
	// have been a replica meanwhile, and have kept the connection.
	silence = time.Second
	// anyAge is above every token: any counter may end too early, or have fallen
	// back. The one of the next grant is then seeded anew.
	anyAge = 1 << 53
)

// serverClock is a reading of the server's clock, if there is one.
type serverClock struct {
	last atomic.Pointer[reading]
	// heard is when what the server answered last was sent, in ns since began.
	heard atomic.Int64
}

// reading is one of the server's clock. A server that was restarted with old data,
// or a replica that took over, has counters that fell back. But whatever was
// granted before it was asked for its time is below that, and what was granted
// since is above.
type reading struct {
	at time.Time // before the request was sent
	us int64
	// changes is that of the client before the request was sent.
	changes uint64
}

// began is the origin of serverClock.heard.
var began = clock.Now()

// least returns the token above which a counter has not fallen back, and does not
// end before a lease of the given TTL, for a request that is sent now.
func (c *serverClock) least(now time.Time, ttl time.Duration, changes uint64) int64 {
	r := c.last.Load()
	if r == nil || r.changes != changes || now.Sub(began)-time.Duration(c.heard.Load()) > silence {
		return anyAge
	}
	return max(r.us, c.oldest(now, ttl))
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

// learn takes the reading that an acquire has brought.
func (c *serverClock) learn(sent time.Time, changes uint64, clock time.Duration) {
	if us := clock.Microseconds(); us > 0 {
		c.last.Store(&reading{at: sent, us: us, changes: changes})
	}
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

// least returns what serverClock.least does. The nodes of a cluster take over from
// one another without a new connection or a redirection, so that a reading may be
// that of another node: there every grant is seeded.
func (s *Store) least(server *serverClock, now time.Time, ttl time.Duration, changes uint64) int64 {
	if s.main.Cluster() {
		return anyAge
	}
	return server.least(now, ttl, changes)
}

// doubt forgets what is known of the server's clock after an error that may tell of
// another server, or of another role of the same.
func (s *Store) doubt(err error) {
	switch err = classify(err); {
	case err == nil, s.main.Cluster():
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrAmnesia):
	default:
		s.clocks.single.last.Store(nil)
	}
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
