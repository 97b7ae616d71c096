package quorumdriver

import (
	"context"
	"errors"
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
// repeat it at a node that has lost the lease, and the requests under way at each node, so
// that they arrive in order.
//
// There is no state of other processes' leases. They can be renewed and released, but the
// driver repairs no node for them.
type lease struct {
	leaseKey

	mu          sync.Mutex
	req         driver.Request // of this process; without a key if it has not asked
	held        bool           // granted, and neither given back nor lost since
	ends        time.Time      // when the last grant or renewal here ends, by package clock
	token       int64          // of the grant
	first       bool           // no other process was granted it before
	ended       bool           // given back for good
	endReported bool           // its end was answered
	round       int            // counts the rounds that were begun or given up
	// refused reports whether a majority refused the last round, so that nobody held the
	// lease then.
	refused     bool
	acquiring   bool          // an acquire is under way
	acquireDone chan struct{} // nil unless a call waits; closed when acquiring ends
	users       int           // calls and background work that concern it
	until       time.Time     // when all of this may be forgotten
	nodes       []nodeState   // by node
}

// nodeState is this process's state of a lease at one node.
type nodeState struct {
	// asked reports whether an acquire was sent since the last answered release. visit is
	// its name.
	asked bool
	visit string
	// vote records whether the node has granted the lease to this process.
	vote  vote
	token int64 // of its answer, or of a raise since
	// unanswered reports whether an acquire was not answered, by the node or behind a node
	// that is a service (Reply.InFlight): it may still take effect.
	unanswered bool
	// released reports whether the node answered a release with Released.
	released bool
	// avoidUntil is until when the node is not asked for the lease. Either a release was
	// not answered, and could end a new grant when it arrives; or the node keeps an
	// unused lease, which another request would prolong.
	avoidUntil time.Time

	queue nodeQueue
}

// vote is a node's answer to an acquire.
type vote uint8

const (
	none vote = iota
	granted
	unsure // the node did not answer
)

// use returns the lease of a name and counts a user; leave ends the use.
func (s *Driver) use(k leaseKey) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil {
		s.sweep()
		l = &lease{leaseKey: k, nodes: make([]nodeState, len(s.nodes))}
		s.leases[k] = l
	}
	l.use()
	return l
}

// lookup is use for a lease that is known. It returns nil if it is not.
func (s *Driver) lookup(k leaseKey) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l != nil {
		l.use()
	}
	return l
}

// use counts one more user.
func (l *lease) use() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
}

// leave ends a use. The last user forgets the lease, unless something has to be
// remembered.
func (s *Driver) leave(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.forgettable(time.Now()) {
		delete(s.leases, l.leaseKey)
	}
}

// forgettable reports whether the lease can be dropped. The caller holds mu.
func (l *lease) forgettable(now time.Time) bool {
	switch {
	case l.users > 0:
		return false
	case now.After(l.until):
		return true
	}
	return !l.held && !l.mayWait() && !slices.ContainsFunc(l.nodes, func(p nodeState) bool {
		return p.queue.busy || p.unanswered || p.released && l.ended && !l.endReported || now.Before(p.avoidUntil)
	})
}

// lockAcquire waits until no other call of this process asks for the lease: one call must
// not undo a grant that another one has returned. unlockAcquire ends that.
func (l *lease) lockAcquire(ctx context.Context) error {
	for {
		l.mu.Lock()
		if !l.acquiring {
			l.acquiring = true
			l.mu.Unlock()
			return nil
		}
		if l.acquireDone == nil {
			l.acquireDone = make(chan struct{})
		}
		free := l.acquireDone
		l.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
		}
	}
}

func (l *lease) unlockAcquire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acquiring = false
	if l.acquireDone != nil {
		close(l.acquireDone)
		l.acquireDone = nil
	}
}

// askedHere reports whether this process has asked for the lease. The caller holds mu.
func (l *lease) askedHere() bool { return l.req.Key != "" }

// mayWait reports whether a waiter asks for the lease from time to time. The caller holds
// mu.
func (l *lease) mayWait() bool { return l.req.TicketTTL > 0 && !l.ended }

// sweep drops ended leases whenever the number of leases has doubled. The end of a lease of
// another process, or of a process that died, is not reported here. The caller holds mu.
func (s *Driver) sweep() {
	const least = 64
	if len(s.leases) < max(s.sweepSize, least) {
		return
	}
	now := time.Now()
	maps.DeleteFunc(s.leases, func(_ leaseKey, l *lease) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.forgettable(now)
	})
	s.sweepSize = 2 * len(s.leases)
}

// requestLife bounds how long a request that was given up may be on its way.
func requestLife(ttl time.Duration) time.Duration { return max(ttl, timing.ForbidFor) }

// keepFor keeps the lease for d, and for as long as a request may be on its way. The
// caller holds mu.
func (l *lease) keepFor(d time.Duration) {
	if until := time.Now().Add(d + requestLife(l.req.TTL)); until.After(l.until) {
		l.until = until
	}
}

// note stores the request. The request of a lease that is held stays until the answer.
func (l *lease) note(req driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapse()
	if !l.held {
		l.req, l.ended, l.endReported = req, false, false
	}
	l.keepFor(max(req.TTL, req.TicketTTL))
}

// grant stores a grant that was asked for at a time. A granted lease does not wait, also not
// after it was lost.
func (l *lease) grant(req driver.Request, reply driver.Reply, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	req.TicketTTL = 0
	if !l.held {
		l.first, l.ends = !reply.Replayed, time.Time{}
	}
	l.req, l.held, l.token = req, !l.ended, reply.Token
	l.lastFor(asked, req.TTL)
}

// lastFor notes that the lease lasts for a while from a time on. The caller holds mu.
func (l *lease) lastFor(from time.Time, ttl time.Duration) {
	if ends := from.Add(timing.Life(ttl, timing.Drift)); ends.After(l.ends) {
		l.ends = ends
	}
}

// lapse records that a lease whose end has passed here is not held. If the nodes still have
// it, another process has renewed it, or has got it again with a greater token, possibly
// after another holder of the lock. The caller holds mu.
func (l *lease) lapse() {
	if !l.held || clock.Now().Before(l.ends) {
		return
	}
	l.held = false
	if l.acquiring {
		return // votes may belong to the round under way, which undoes them if it is lost
	}
	for i := range l.nodes {
		l.nodes[i].vote = none
	}
}

// reportedToken returns the token that this process first reported to the holder, if the
// lease is exclusive and not re-entrant: no node may then have another token. Otherwise it
// returns 0.
func (l *lease) reportedToken() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapse()
	if !l.held || !l.first || l.req.Reenter || l.req.Mode != driver.Exclusive {
		return 0
	}
	return l.token
}

// holds reports whether the lease was granted here, and neither given back nor lost since.
func (l *lease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapse()
	return l.held
}

// markLost notes that the lease is not held.
func (l *lease) markLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
}

// definite is [timing.Definite] for an error of one node, which may have refused a
// request with Guard.
func definite(err error) bool {
	return timing.Definite(err) || errors.Is(err, driver.ErrAmnesia)
}
