package redisroom

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// All locks of a store share a counter of fencing tokens, or those of one slot of a cluster.
// It is seeded with the server's clock in µs, and lives for an hour after that. A counter that
// is lost is seeded above all earlier tokens. But the counter of a server that was restarted
// with old data, or of a promoted replica, has fallen back: so a request contains the greatest
// token that such a counter may have, and the script seeds a counter again that is not above
// it. One reading of the server's clock suffices for that, because the time since then is
// measured here, monotonically.
const (
	// readingLife is how long a reading of the server's clock is used: later the
	// server may be another one, or its clock may have been stepped.
	readingLife = 10 * time.Minute
	// silence is how long a reading is valid without an answer of the server: the
	// server may have become a replica, on the same connection.
	silence = time.Second
	// anyToken is above every token: any counter may have fallen back, so the next grant
	// seeds it.
	anyToken = 1 << 53
)

// reading is a reading of the server's clock. A token that was given before it is not above it,
// and the counter was above it then.
type reading struct {
	at time.Time // before the request was sent
	us int64
	// changes is that of the client before the request was sent.
	changes uint64
}

// began is the origin of Store.heard.
var began = clock.Now()

// least returns a bound for a request that is sent now: a counter that is not above it has fallen
// back, and must be seeded. In a cluster a node may take over from another without a new connection or a
// redirection, so a reading may be another node's: every grant is seeded.
func (s *Store) least(now time.Time, changes uint64) int64 {
	r := s.reading.Load()
	if s.main.Cluster() || r == nil || r.changes != changes || now.Sub(r.at) > readingLife || now.Sub(began)-time.Duration(s.heard.Load()) > silence {
		return anyToken
	}
	return r.us
}

// forgetClock forgets the server's clock after an error that may come from another server, or
// from another role of the same one.
func (s *Store) forgetClock(err error) {
	switch err = classify(err); {
	case err == nil, s.main.Cluster():
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrAmnesia):
	default:
		s.reading.Store(nil)
	}
}

// counter returns the key of the counter of the lock with the holder key h.
func (s *Store) counter(h []byte) string {
	if s.bySlot.Load() {
		return slotCounter(s.prefix, string(h))
	}
	return s.counterKey
}

// countBySlot puts the counter of a slot into a command that a cluster refused because it had
// that of the whole store. It reports whether that may help.
func (s *Store) countBySlot(cmd []string) (changed bool) {
	s.bySlot.Store(true)
	counter := slotCounter(s.prefix, cmd[FirstKey])
	for i := range cmd {
		if cmd[i] == s.counterKey {
			cmd[i], changed = counter, counter != s.counterKey
		}
	}
	return changed
}

// leaveCounter puts the H of each room in the place of its counter, which may be on another node
// while a slot moves. A grant's token then stays with its room. It reports whether that may
// help: if it was done before, leaveCounter takes it back for a later try.
func (s *Store) leaveCounter(cmd []string) bool {
	keys, _ := strconv.Atoi(cmd[FirstKey-1])
	left := cmd[FirstKey+roomKeys-1] == cmd[FirstKey]
	for h := FirstKey; h+roomKeys <= FirstKey+keys; h += roomKeys {
		cmd[h+roomKeys-1] = cmd[h]
		if left {
			cmd[h+roomKeys-1] = s.counter([]byte(cmd[h]))
		}
	}
	return !left
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
