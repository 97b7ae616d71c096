// Package line hands a lock on from goroutine to goroutine inside one process.
//
// Calls for one lock wait in a line of the process. One request waits in the store for
// all of them. When the store grants it, a [Turn] begins: the lease goes to the first call,
// and each release passes it to the next call with the next token, without a request. The
// turn ends when the line is empty, when other processes wait in the store and the agreed
// number of passes is used up, or when the lease is lost.
package line

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// Lines holds the lines of one client. It is safe for concurrent use.
type Lines struct {
	session *session.Session
	off     atomic.Bool // the store keeps no queue, or mints no tokens

	mu  sync.Mutex // guards all lines with their calls and turns
	all map[Group]*line
}

// New returns the lines of a session. They are not used if the store keeps no queue.
func New(s *session.Session, queue bool) *Lines {
	l := &Lines{session: s}
	l.off.Store(!queue)
	return l
}

// On reports whether the store allows leases to be passed on.
func (l *Lines) On() bool { return !l.off.Load() }

// Group is the part of a request that all calls of a line have in common: each of them may
// take over the lease that the store granted to another call of its group.
type Group struct {
	Key                                       string
	Policy                                    driver.Policy
	TTL, LockDelay, ReleaseTimeout, MaxOutage time.Duration
	RenewFraction, Drift                      float64
	MaxAttempts                               int
	Passes                                    int // of a lease while other processes wait in the store
	Name, Labels                              string
	MinToken                                  int64
}

// Request is a lock that a call asks for.
type Request interface {
	// Group returns the line of the request.
	Group() Group
	// Terms returns the terms of its lease.
	Terms() *session.Terms
	// Request returns a request to the store with a new lease id.
	Request() driver.Request
}

// line is the line of one group. A request waits in the store for it, or a turn goes on, or
// the line is empty and not in [Lines.all].
type line struct {
	all    *Lines
	group  Group
	wait   list.List // of *Call
	asking *asking
	turn   *Turn
	last   int // number given to a call
	ranks  ranks
}

// asking is the request that waits in the store for a line.
type asking struct {
	cancel   context.CancelFunc
	waiter   *session.Waiter // set while the store has queued the request
	position int             // in the store's answer
	owner    string          // of the lease that it waits for
}

// Holder returns the lease that the group's line passes on, or nil, and whether calls wait in
// that line.
func (l *Lines) Holder(g Group) (h *session.Hold, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.all[g]
	if here == nil {
		return nil, false
	}
	if here.turn != nil {
		h = here.turn.hold
	}
	return h, here.wait.Len() > 0
}

// Len returns how many calls wait in lines for a key.
func (l *Lines) Len(key string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, here := range l.all {
		if g.Key == key {
			n += here.wait.Len()
		}
	}
	return n
}

// put puts a call into its line. The caller holds mu, as for all methods below and in turn.go
// unless their comment has another rule.
func (l *Lines) put(c *Call, put func(*list.List, any) *list.Element) {
	g := c.request.Group()
	here := l.all[g]
	if here == nil {
		here = &line{all: l, group: g}
		if l.all == nil {
			l.all = make(map[Group]*line)
		}
		l.all[g] = here
	}
	c.line, c.place = here, put(&here.wait, c)
	if c.number == 0 { // otherwise it returns to its old place
		here.last++
		c.number = here.last
	}
	here.ranks.join(&here.wait, c.number)
	switch {
	case here.turn != nil:
		c.queued(here.wait.Len(), g.Name)
		here.turn.refill(c.all.session.Now())
	case here.asking == nil:
		here.next()
	case here.asking.waiter != nil:
		c.queued(here.asking.position+here.wait.Len()-1, here.asking.owner)
	}
}

// remove takes a call out of the line.
func (l *line) remove(c *Call) {
	l.wait.Remove(c.place)
	l.ranks.add(c.number, -1)
}

// next starts a request to the store for the line. An empty line is forgotten instead.
func (l *line) next() {
	if l.wait.Len() == 0 {
		delete(l.all.all, l.group)
		return
	}
	c := l.wait.Front().Value.(*Call)
	// The request keeps the values of the first call's context but not its end, since that
	// call may leave.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.ctx))
	l.asking = &asking{cancel: cancel}
	l.all.session.Background(func() {
		defer cancel()
		l.ask(ctx, c.request)
	})
}

// queuedSince reports to calls that joined during the request that they have to wait.
func (l *line) queuedSince() {
	position := l.wait.Len()
	for e := l.wait.Back(); e != nil && !e.Value.(*Call).waits; e = e.Prev() {
		e.Value.(*Call).queued(position, l.group.Name)
		position--
	}
}

// queued reports the store's answer a, by which the request w waits, to all calls of the
// line. The caller does not hold mu.
func (l *line) queued(w *session.Waiter, a *session.Answer) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.asking.waiter, l.asking.position = w, a.Position
	if len(a.Holders) > 0 {
		l.asking.owner = a.Holders[0].Owner
	}
	position := a.Position
	for e := l.wait.Front(); e != nil; e = e.Next() {
		e.Value.(*Call).queued(position, l.asking.owner)
		position++
	}
}

// dequeued notes that the request no longer waits in the store. The caller does not hold mu.
func (l *line) dequeued() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.asking.waiter = nil
}
