package quorumdriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// nodeQueue orders the requests about one lease at one node: one acquire or release is
// under way at a time, and at most one release follows it. The lease's mu guards it.
type nodeQueue struct {
	busy     bool            // a request is under way
	next     *pendingRelease // follows it; nil if there is none
	idle     chan struct{}   // closed when no request is under way; nil unless an acquire waits
	releases int             // that were queued so far
}

// pendingRelease is a release that waits for the request before it.
type pendingRelease struct {
	ref   driver.Ref
	undo  bool          // only if the request before it let the lease in
	also  bool          // undo that grant after this release, if it is still there
	done  chan struct{} // closed when reply and err are set
	reply driver.Reply
	err   error
}

// wait waits until the release was sent and answered.
func (p *pendingRelease) wait(ctx context.Context) (driver.Reply, error) {
	select {
	case <-p.done:
		return p.reply, p.err
	case <-ctx.Done():
		return driver.Reply{}, context.Cause(ctx)
	}
}

// push queues a release. It returns nil if the queue was idle: the release is then the
// request under way. merged reports whether it was joined with the waiting release; a
// release that is not an undo replaces an undo, which follows it if it can only end the
// lease of another visit.
func (q *nodeQueue) push(ref driver.Ref, undo bool) (next *pendingRelease, merged bool) {
	q.releases++
	switch {
	case !q.busy:
		q.busy = true
		return nil, false
	case q.next == nil:
		q.next = &pendingRelease{ref: ref, undo: undo, done: make(chan struct{})}
		return q.next, false
	case undo:
		q.next.also = !q.next.undo
	default:
		if !q.next.undo && q.next.ref.Visit == "" {
			ref.Visit = "" // the release that waits ends the lease of every visit
		}
		q.next.also = q.next.also || q.next.undo
		ref.KeepClosed, ref.RejectIDFor = max(ref.KeepClosed, q.next.ref.KeepClosed), max(ref.RejectIDFor, q.next.ref.RejectIDFor)
		q.next.ref, q.next.undo = ref, false
	}
	return q.next, true
}

// pop ends the request under way and returns the next release, or nil.
func (q *nodeQueue) pop() *pendingRelease {
	next := q.next
	if q.next = nil; next != nil {
		return next
	}
	q.busy = false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return nil
}

// awaitIdle waits until no request is under way or ctx ends. It returns false at once if an
// acquire waits already. It unlocks mu, which the caller holds, while it waits.
func (q *nodeQueue) awaitIdle(ctx context.Context, mu *sync.Mutex) bool {
	if q.idle != nil {
		return false
	}
	idle := make(chan struct{})
	q.idle = idle
	mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	mu.Lock()
	if q.idle == idle {
		q.idle = nil
	}
	return true
}

// nextRound begins a round, and gives the previous round up: its requests that were not
// sent are dropped.
func (l *lease) nextRound() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	return l.round
}

// acquireAt asks one node for the lease, after the request that is under way there.
func (s *Driver) acquireAt(ctx context.Context, l *lease, i, round int, req driver.Request) (driver.Reply, error) {
	if err := s.nodes[i].passGate(ctx, l.key); errors.Is(err, errReleasing) {
		return driver.Reply{State: driver.Busy, RetryAfter: time.Millisecond}, nil
	} else if err != nil {
		return driver.Reply{}, err
	}
	if err := l.beginAcquire(ctx, i, round); err != nil {
		return driver.Reply{}, err
	}
	return s.sendAcquire(ctx, l, i, req)
}

// beginAcquire marks an acquire at a node as under way. It waits for the request under way
// there; a second acquire that would have to wait is refused. The acquire is also refused
// if its round has been given up, or if a release was queued in the meantime.
func (l *lease) beginAcquire(ctx context.Context, i, round int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.nodes[i]
	releases := p.queue.releases
	if p.queue.busy && !p.queue.awaitIdle(ctx, &l.mu) {
		return errBusy
	}
	switch {
	case p.queue.busy, l.ended, l.round != round, p.queue.releases != releases:
		return errBusy
	case time.Now().Before(p.avoidUntil):
		return errUnsure
	}
	p.queue.busy = true
	return nil
}

// sendAcquire sends an acquire after beginAcquire, and notes the outcome.
func (s *Driver) sendAcquire(ctx context.Context, l *lease, i int, req driver.Request) (reply driver.Reply, err error) {
	reply, err = call(ctx, s.nodes[i], func(ctx context.Context) (driver.Reply, error) {
		l.mu.Lock()
		l.nodes[i].asked, l.nodes[i].released, l.nodes[i].visit = true, false, req.Visit
		l.mu.Unlock()
		return s.nodes[i].Acquire(ctx, req)
	})
	if err != nil {
		reply = driver.Reply{}
	}
	l.mu.Lock()
	mine := l.nodes[i].acquired(reply, err)
	reply.Replayed = reply.Replayed && (l.held || !mine) // else the earlier grant was of a round that was lost
	l.mu.Unlock()
	s.finishCall(l, i)
	return reply, err
}

// acquired notes the answer to an acquire. It reports whether this process had asked for
// the lease before: a node spares a lease of another process when this one undoes its
// request.
func (p *nodeState) acquired(reply driver.Reply, err error) (mine bool) {
	mine = p.unanswered || p.vote != none
	p.unanswered = p.unanswered || reply.InFlight // a node that is a service may have an earlier try on its way
	switch {
	case err != nil && definite(err):
	case err != nil:
		p.unanswered = true
		if p.vote == none {
			p.vote = unsure
		}
	case reply.State != driver.Granted:
		p.vote = none
	default:
		p.vote, p.token = granted, reply.Token
	}
	return mine
}

// queueReleases queues a release of the lease at every node, so that no acquire is sent
// before it. An entry is nil if the node is idle: the caller sends that release at once.
func (s *Driver) queueReleases(l *lease, ref driver.Ref) (pending []*pendingRelease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pending = make([]*pendingRelease, len(l.nodes))
	for i := range l.nodes {
		pending[i] = s.queueRelease(l, i, ref, false)
	}
	return pending
}

// queueRelease queues a release at one node, and closes the node's gate for the key until
// it is done. It returns nil if the caller sends the release at once. The caller holds the
// lease's mu.
func (s *Driver) queueRelease(l *lease, i int, ref driver.Ref, undo bool) *pendingRelease {
	pending, merged := l.nodes[i].queue.push(ref, undo)
	if !merged {
		s.nodes[i].closeGate(l.key)
	}
	return pending
}

// undo releases the grants of a lost round, and reports whether that is complete. It waits
// for nodes that granted, at most until ctx ends; nodes that may have granted are
// released in the background. refused reports whether a majority refused the round.
func (s *Driver) undo(ctx context.Context, l *lease, refused bool) bool {
	var nodes, sure set
	ref := driver.Ref{Key: l.key, ID: l.id}
	l.mu.Lock()
	l.round++
	l.refused = refused
	clean := !l.held // from a request before, which this one may have prolonged
	for i := range l.nodes {
		switch p := &l.nodes[i]; {
		case l.held:
		case p.queue.busy:
			clean = clean && p.vote != granted // a release of another visit is under way
			s.queueRelease(l, i, ref, true)
		case l.mustUndo(i):
			s.queueRelease(l, i, ref, true)
			nodes = nodes.with(i)
			if p.vote == granted {
				sure = sure.with(i)
			}
		}
	}
	l.mu.Unlock()
	if nodes == 0 {
		return clean
	}
	r := ask(context.WithoutCancel(ctx), s, l, nodes, s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		return s.releaseNow(ctx, l, i, ref, true)
	})
	defer r.finish(nil)
	for sure != 0 {
		a, ok := r.nextBefore(ctx.Done())
		if !ok || sure.has(a.node) && (a.err != nil || a.value.State == driver.Busy) {
			return false // Busy: it belongs to another visit too
		}
		sure = sure.without(a.node)
	}
	return clean
}

// mustUndo reports whether a node needs an undo. A waiter asks again soon, so a request
// whose effect is uncertain need not be undone. The caller holds mu.
func (l *lease) mustUndo(i int) bool {
	return l.nodes[i].vote == granted || l.nodes[i].vote == unsure && !l.mayWait()
}

// releaseNow sends a release that was queued as the request under way.
func (s *Driver) releaseNow(ctx context.Context, l *lease, i int, ref driver.Ref, undo bool) (driver.Reply, error) {
	reply, err := s.sendRelease(ctx, l, i, ref, undo)
	s.nodes[i].openGate(l.key)
	s.finishCall(l, i)
	return reply, err
}

// finishCall ends the request that was under way at a node, and sends the release that
// was queued behind it.
func (s *Driver) finishCall(l *lease, i int) {
	for {
		l.mu.Lock()
		next := l.nodes[i].queue.pop()
		skip := next != nil && next.undo && !l.mustUndo(i)
		l.mu.Unlock()
		if next == nil {
			return
		}
		if !skip {
			ctx, cancel := context.WithTimeoutCause(context.Background(), s.timeout, errNoAnswer)
			next.reply, next.err = s.sendRelease(ctx, l, i, next.ref, next.undo)
			cancel()
		}
		if next.also {
			s.undoAt(l, i)
		}
		s.nodes[i].openGate(l.key)
		close(next.done)
	}
}

// undoAt undoes the grant at a node.
func (s *Driver) undoAt(l *lease, i int) {
	l.mu.Lock()
	must := l.mustUndo(i)
	l.mu.Unlock()
	if must {
		ctx, cancel := context.WithTimeoutCause(context.Background(), s.timeout, errNoAnswer)
		defer cancel()
		_, _ = s.sendRelease(ctx, l, i, driver.Ref{Key: l.key, ID: l.id}, true)
	}
}

// sendRelease sends a release and records the outcome. An undo releases the last visit's
// grant, and so only a grant that no caller has received. After an acquire that may still
// arrive, the id is rejected.
func (s *Driver) sendRelease(ctx context.Context, l *lease, i int, ref driver.Ref, undo bool) (reply driver.Reply, err error) {
	l.mu.Lock()
	p := &l.nodes[i]
	if undo {
		ref.Visit = p.visit
	}
	if l.ended && p.unanswered && ref.RejectIDFor == 0 {
		ref.RejectIDFor = requestLife(l.req.TTL)
	}
	// A node that was never asked for the lease has nothing to release.
	idle := l.askedHere() && !p.asked && !p.released && ref.KeepClosed == 0 && ref.RejectIDFor == 0
	lag := l.tokenToRaise(i, ref)
	// The release of an unanswered request is also sent to a node that hangs, because the
	// request takes effect when the node continues.
	must := p.unanswered
	l.mu.Unlock()
	if idle {
		return driver.Reply{State: driver.Gone}, nil
	}
	if n := s.nodes[i]; !n.begin(must) {
		err = errHangs
	} else {
		if lag > 0 && !s.plainMaximum {
			s.raiseBeforeRelease(ctx, i, driver.Ref{Key: ref.Key, ID: ref.ID, TTL: shortest, Token: lag})
		}
		reply, err = n.Release(ctx, ref)
		n.end(ctx, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil && !definite(err):
		p.avoidUntil = time.Now().Add(requestLife(l.req.TTL))
	case err != nil:
	case reply.State == driver.Gone && !reply.Broken && p.released && !l.endReported:
		reply.State = driver.Released // by an earlier try
	case reply.State == driver.Busy && undo:
		p.vote = none // the lease belongs to another visit too
		if l.refused {
			p.avoidUntil = time.Now().Add(l.req.TTL)
		}
	case reply.State == driver.Busy: // another visit's grant may still need an undo
	default:
		p.asked, p.vote, p.token, p.released = false, none, 0, reply.State == driver.Released
		p.unanswered = p.unanswered && ref.RejectIDFor == 0
	}
	return reply, err
}
