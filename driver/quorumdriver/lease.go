package quorumdriver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// leaseKey names a lease or a waiter.
type leaseKey struct{ key, id string }

// lease is this process's state of a lease that it holds or waits for: the request, to
// repeat it at a node that has lost the lease, and the state at each node.
//
// There is no state of other processes' leases. They can be renewed and released, but the
// driver repairs no node for them.
type lease struct {
	leaseKey
	s *Driver
	// turn holds a token while a call asks for the lease: one call must not undo a grant that
	// another one has returned. It is made with the first request.
	turn chan struct{}

	mu    sync.Mutex
	phase phase
	req   driver.Request // of this process; without a key if it has not asked
	ends  time.Time      // when the last grant or renewal here ends, by package clock
	token int64          // of the grant
	first bool           // no other process was granted it before
	round int            // counts the rounds that were begun or given up
	// refused reports whether a majority refused the last round, so that nobody held the
	// lease then.
	refused bool
	until   time.Time   // when all of this may be forgotten
	nodes   []nodeLease // by node

	users int // calls and background work that concern it; guarded by the driver's mu
}

// phase is how far a lease has come.
type phase uint8

const (
	open     phase = iota // not granted here, or lost since
	held                  // granted here, and neither released nor lost since
	ended                 // released for good
	reported              // ended, and its caller has received the end
)

// use returns the lease of a name and counts a user; leave ends the use.
func (s *Driver) use(k leaseKey) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil {
		s.sweep()
		l = &lease{leaseKey: k, s: s, nodes: make([]nodeLease, len(s.nodes))}
		for i, n := range s.nodes {
			l.nodes[i].lease, l.nodes[i].node = l, n
		}
		s.leases[k] = l
	}
	l.users++
	return l
}

// useAgain counts another user of a lease in use.
func (s *Driver) useAgain(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users++
}

// leave ends a use. The last user forgets the lease, unless something has to be
// remembered.
func (s *Driver) leave(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.forgettable(time.Now()) {
		delete(s.leases, l.leaseKey)
	}
}

// forgettable reports whether the lease can be dropped. The caller holds the driver's mu.
func (l *lease) forgettable(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.users > 0:
		return false
	case now.After(l.until):
		return true
	}
	return l.phase != held && !l.mayWait() && !slices.ContainsFunc(l.nodes, func(n nodeLease) bool {
		return n.busy || n.unanswered || n.state == released && l.phase == ended || now.Before(n.avoidUntil)
	})
}

// sweep drops ended leases whenever the number of leases has doubled. The end of a lease of
// another process, or of a process that died, is not reported here. The caller holds mu.
func (s *Driver) sweep() {
	const least = 64
	if len(s.leases) < max(s.sweepSize, least) {
		return
	}
	now := time.Now()
	maps.DeleteFunc(s.leases, func(_ leaseKey, l *lease) bool { return l.forgettable(now) })
	s.sweepSize = 2 * len(s.leases)
}

// takeTurn waits until no other call of this process asks for the lease.
func (l *lease) takeTurn(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}: // also if ctx has ended
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
	}
}

// askedHere reports whether this process has asked for the lease. The caller holds mu.
func (l *lease) askedHere() bool { return l.req.Key != "" }

// mayWait reports whether a waiter asks for the lease from time to time. The caller holds
// mu.
func (l *lease) mayWait() bool { return l.req.TicketTTL > 0 && l.phase < ended }

// exclusive reports whether no other lease has the token of this one. The caller holds mu.
func (l *lease) exclusive() bool { return l.req.Mode == driver.Exclusive && !l.req.Reenter }

// requestLife bounds how long a request that was given up may be on its way.
func requestLife(ttl time.Duration) time.Duration { return max(ttl, timing.ForbidFor) }

// keepFor keeps the lease for d, and for as long as a request may be on its way. The
// caller holds mu.
func (l *lease) keepFor(d time.Duration) {
	if until := time.Now().Add(d + requestLife(l.req.TTL)); until.After(l.until) {
		l.until = until
	}
}

// storeRequest stores a request. The request of a lease that is held stays until the answer.
func (l *lease) storeRequest(req driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isHeld() {
		l.req, l.phase = req, open
	}
	if l.turn == nil {
		l.turn = make(chan struct{}, 1)
	}
	l.keepFor(max(req.TTL, req.TicketTTL))
}

// nextRound begins a round, and gives the previous round up: its requests that were not
// sent are dropped.
func (l *lease) nextRound() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	return l.round
}

// grant stores a grant that was asked for at a time. A granted lease does not wait, also
// not after it was lost. A lease that was released in the meantime stays ended.
func (l *lease) grant(req driver.Request, reply driver.Reply, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	req.TicketTTL = 0
	if l.phase != held {
		l.first, l.ends = !reply.Replayed, time.Time{}
	}
	if l.phase == open {
		l.phase = held
	}
	l.req, l.token = req, reply.Token
	l.lastFor(asked, req.TTL)
}

// lastFor notes that the lease lasts for a while from a time on. The caller holds mu.
func (l *lease) lastFor(from time.Time, ttl time.Duration) {
	if ends := from.Add(timing.Life(ttl, timing.Drift)); ends.After(l.ends) {
		l.ends = ends
	}
}

// isHeld reports whether the lease was granted here, and neither released nor lost since.
// If the nodes still have a lease whose end has passed here, another process has renewed it,
// or has got it again with a greater token, possibly after another holder of the lock. The
// caller holds mu.
func (l *lease) isHeld() bool {
	if l.phase == held && !clock.Now().Before(l.ends) {
		l.markExpired()
	}
	return l.phase == held
}

// markExpired records that the lease is over here. Its votes stay during a round, to which
// they may belong: it undoes them if it is lost. The caller holds mu.
func (l *lease) markExpired() {
	l.phase = open
	for i := range l.nodes {
		if n := &l.nodes[i]; len(l.turn) == 0 && (n.state == unknown || n.state == granted) {
			n.state = asked
		}
	}
}

// markLost notes that the lease is not held.
func (l *lease) markLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == held {
		l.phase = open
	}
}

// holds is isHeld for callers without mu.
func (l *lease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isHeld()
}

// reportedToken returns the token that this process first reported to the holder, if the
// lease is exclusive and not re-entrant: no node may then have another token. Otherwise it
// returns 0. The caller holds mu.
func (l *lease) reportedToken() int64 {
	if !l.isHeld() || !l.first || !l.exclusive() {
		return 0
	}
	return l.token
}
