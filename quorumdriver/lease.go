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
	"github.com/leasehold-go/leasehold/internal/timing"
)

// leaseKey names a lease or a waiter.
type leaseKey struct{ key, id string }

// lease is what this process knows of one lease, or of one that is waited for:
// what was asked for it, so that a node that has forgotten it can be asked
// again, and what is under way at each node, so that requests arrive in order.
//
// Leases of other processes are not known and need not be: they can be renewed
// and released, but no node is healed for them.
type lease struct {
	leaseKey

	mu    sync.Mutex
	req   driver.Request // as asked for here; without a key if it was not
	held  bool           // granted, and neither given back nor lost since
	token int64          // of the grant
	first bool           // no other process was granted it before
	over  bool           // given back for good
	told  bool           // its end was answered
	round int            // counts the rounds that were begun or given up
	// refused tells that the last round was lost because a majority refused it, so
	// that nobody held the lease then.
	refused bool
	taken   bool          // somebody is asking for it
	free    chan struct{} // closed when nobody does any more, for those who wait for that
	users   int           // calls and background work that concern it
	until   time.Time     // when all of this may be forgotten
	at      []post        // by node
}

// post is what is known of a lease at one node.
type post struct {
	// asked tells that an acquire was sent since the last answered release, and
	// visit the name that it gave.
	asked bool
	visit string
	// vote tells whether the node has let the lease in at our request.
	vote  vote
	token int64 // of its answer, or to which it was raised since
	// away tells that an acquire went unanswered: it may still be on its way.
	away bool
	// released tells that the node answered a release with "it was there".
	released bool
	// shunned is until when the node is not asked to let the lease in: a
	// release went unanswered, and would end what is granted before it comes; or
	// the node keeps what nobody holds, and asking would prolong that.
	shunned time.Time

	// busy tells of an acquire or a release under way; next is the release
	// that follows it, and idle is closed when nothing follows any more, for an
	// acquire that waits for that. An acquire is not sent any more if releases
	// has changed since it began to wait.
	busy     bool
	next     *parting
	idle     chan struct{}
	releases int
}

// vote is what a node has said of a lease.
type vote uint8

const (
	none vote = iota
	granted
	unsure // it did not answer
)

// parting is a release that waits for what is under way before it.
type parting struct {
	ref   driver.Ref
	undo  bool          // only if that let the lease in
	done  chan struct{} // closed when reply and err are set
	reply driver.Reply
	err   error
}

// use returns the lease of that name and counts in whoever asks; leave counts
// out.
func (s *Driver) use(k leaseKey) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil {
		s.sweep()
		l = &lease{leaseKey: k, at: make([]post, len(s.nodes))}
		s.leases[k] = l
	}
	l.share()
	return l
}

// lookup is use of a lease that is known, or nil.
func (s *Driver) lookup(k leaseKey) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l != nil {
		l.share()
	}
	return l
}

// share counts in somebody who works for one who uses the lease.
func (l *lease) share() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
}

// leave forgets the lease with the last who uses it, unless something has to be
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

// forgettable reports whether nothing has to be remembered. The caller holds mu.
func (l *lease) forgettable(now time.Time) bool {
	switch {
	case l.users > 0:
		return false
	case now.After(l.until):
		return true
	}
	return !l.held && !l.waits() && !slices.ContainsFunc(l.at, func(p post) bool {
		return p.busy || p.away || p.released && l.over && !l.told || now.Before(p.shunned)
	})
}

// take waits until nobody else of this process asks for the lease, so that what one
// gives back another has not been told of. give ends that.
func (l *lease) take(ctx context.Context) error {
	for {
		l.mu.Lock()
		if !l.taken {
			l.taken = true
			l.mu.Unlock()
			return nil
		}
		if l.free == nil {
			l.free = make(chan struct{})
		}
		free := l.free
		l.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
		}
	}
}

func (l *lease) give() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = false
	if l.free != nil {
		close(l.free)
		l.free = nil
	}
}

// known reports whether it was asked for here.
func (l *lease) known() bool { return l.req.Key != "" }

// waits reports whether it is asked for from time to time.
func (l *lease) waits() bool { return l.req.TicketTTL > 0 && !l.over }

// sweep forgets leases whose time is over, now and then: of those whose holder
// has gone nobody says so. The caller holds mu.
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

// flight is for how long a request may be on its way that nobody waits for any
// more.
func flight(ttl time.Duration) time.Duration { return max(ttl, timing.ForbidFor) }

// remember keeps what is known for d and as long as a request may be on its way.
// The caller holds mu.
func (l *lease) remember(d time.Duration) {
	if until := time.Now().Add(d + flight(l.req.TTL)); until.After(l.until) {
		l.until = until
	}
}

// note remembers what is asked. A lease that is held is what it was until the
// answer.
func (l *lease) note(req driver.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		l.req, l.over, l.told = req, false, false
	}
	l.remember(max(req.TTL, req.TicketTTL))
}

// grant remembers what was granted. It does not wait any more, also when it is
// lost one day.
func (l *lease) grant(req driver.Request, reply driver.Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	req.TicketTTL = 0
	if !l.held {
		l.first = !reply.Replayed
	}
	l.req, l.held, l.token = req, !l.over, reply.Token
}

// shown is the token that the holder was told, if it was told here first and holds the
// lease alone: then no node is to have another.
func (l *lease) shown() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held || !l.first || l.req.Reenter || l.req.Mode != driver.Exclusive {
		return 0
	}
	return l.token
}

// lose notes that the lease is not held.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
}

// definite is [timing.Definite] of an error of one node, which may have refused a
// request with Guard.
func definite(err error) bool {
	return timing.Definite(err) || errors.Is(err, driver.ErrAmnesia)
}
