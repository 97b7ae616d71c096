package quorumdriver

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
)

// nodeLease is this process's state of a lease at one node. One acquire or release is under
// way there at a time, so that they arrive in the order in which they were sent. At most
// one release and one undo follow it. The lease's mu guards all fields but the first two.
type nodeLease struct {
	lease *lease
	node  *node

	state nodeState
	visit string // of the last acquire
	token int64  // of the node's answer, or of a raise since
	// unanswered reports whether an acquire was not answered, by the node or behind a node
	// that is a service (Reply.InFlight): it may still take effect.
	unanswered bool
	// avoidUntil is until when the node is not asked for the lease. Either a release was
	// not answered, and could end a new grant when it arrives; or the node keeps an
	// unused lease, which another request would prolong.
	avoidUntil time.Time

	busy     bool            // an acquire or release is under way
	release  *pendingRelease // follows it; nil if there is none
	undo     bool            // follows both, if the node may have granted the lease by then
	releases int             // releases and undos that were wanted so far
	gated    bool            // the node's gate is closed for them
	idle     chan struct{}   // closed when busy ends; nil unless an acquire waits
}

// nodeState is how far the requests at a node have come.
//
//	event                                       from               to
//	an acquire is sent                          absent, released   asked
//	it is granted                               any                granted
//	it is not answered                          asked              unknown
//	it is refused, or the lease expires         any                asked
//	an undo is refused: it is another's lease   any                asked
//	a release ends the lease                    any                released
//	a release finds no lease                    any                absent
type nodeState uint8

const (
	absent   nodeState = iota // no request of this process needs an undo
	asked                     // asked, without a grant to undo
	unknown                   // asked, and possibly granted
	granted                   // granted to this process
	released                  // the last release ended the lease
)

// pendingRelease is a release that waits for the request before it.
type pendingRelease struct {
	ref   driver.Ref
	done  chan struct{} // closed when reply and err are set
	reply driver.Reply
	err   error
}

// acquire asks the node for the lease, after the request that is under way there.
func (n *nodeLease) acquire(ctx context.Context, round int, req driver.Request) (driver.Reply, error) {
	if err := n.node.passGate(ctx, n.lease.key); errors.Is(err, errReleasing) {
		return driver.Reply{State: driver.Busy, RetryAfter: time.Millisecond}, nil
	} else if err != nil {
		return driver.Reply{}, err
	}
	if err := n.beginAcquire(ctx, round); err != nil {
		return driver.Reply{}, err
	}
	return n.sendAcquire(ctx, req)
}

// beginAcquire marks an acquire as under way. It waits for the request under way; a second
// acquire that would have to wait is refused. The acquire is also refused if its round has
// been given up, or if a release was wanted in the meantime.
func (n *nodeLease) beginAcquire(ctx context.Context, round int) error {
	l := n.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	releases := n.releases
	if n.busy && !n.awaitIdle(ctx) {
		return errBusy
	}
	switch {
	case n.busy, l.phase >= ended, l.round != round, n.releases != releases:
		return errBusy
	case time.Now().Before(n.avoidUntil):
		return errUnsure
	}
	n.busy = true
	return nil
}

// awaitIdle waits until no request is under way or ctx ends. It returns false at once if an
// acquire waits already. It unlocks mu, which the caller holds, while it waits.
func (n *nodeLease) awaitIdle(ctx context.Context) bool {
	if n.idle != nil {
		return false
	}
	idle := make(chan struct{})
	n.idle = idle
	n.lease.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	n.lease.mu.Lock()
	if n.idle == idle {
		n.idle = nil
	}
	return true
}

// sendAcquire sends an acquire, which the caller has marked as under way, and stores the
// outcome.
func (n *nodeLease) sendAcquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	l := n.lease
	reply, err := call(ctx, n.node, func(ctx context.Context) (driver.Reply, error) {
		l.mu.Lock()
		if n.visit = req.Visit; n.state == absent || n.state == released {
			n.state = asked
		}
		l.mu.Unlock()
		return n.node.Acquire(ctx, req)
	})
	if err != nil {
		reply = driver.Reply{}
	}
	l.mu.Lock()
	mine := n.acquireAnswered(reply, err)
	reply.Replayed = reply.Replayed && (l.phase == held || !mine) // else the earlier grant was of a round that was lost
	l.mu.Unlock()
	n.finish()
	return reply, err
}

// acquireAnswered stores the answer to an acquire. It reports whether this process had
// asked for the lease before: a node spares a lease of another process when this one undoes
// its request.
func (n *nodeLease) acquireAnswered(reply driver.Reply, err error) (mine bool) {
	mine = n.unanswered || n.state == unknown || n.state == granted
	n.unanswered = n.unanswered || reply.InFlight // a node that is a service may have an earlier try on its way
	switch {
	case err != nil && definite(err):
	case err != nil:
		n.unanswered = true
		if n.state == asked {
			n.state = unknown
		}
	case reply.State != driver.Granted:
		n.state = asked
	default:
		n.state, n.token = granted, reply.Token
	}
	return mine
}

// reacquire acquires the lease again at a node that has forgotten it, after a majority has
// renewed it.
func (n *nodeLease) reacquire(ctx context.Context, ttl time.Duration) error {
	l := n.lease
	l.mu.Lock()
	req, token := l.req, l.token
	free := l.phase == held && !n.busy && !time.Now().Before(n.avoidUntil)
	n.busy = n.busy || free // in the same step, so that a release comes after it
	l.mu.Unlock()
	if !free {
		return nil
	}
	req.TTL, req.TicketTTL = ttl, 0
	if token > 0 {
		req.MinToken = token - 1
	}
	_, err := n.sendAcquire(ctx, l.s.request(n.node, req))
	return err
}

// wantRelease queues a release. It returns nil if no request is under way: the release is
// then marked as under way, and the caller sends it at once. Two releases that wait are
// joined. The caller holds mu.
func (n *nodeLease) wantRelease(ref driver.Ref) *pendingRelease {
	switch p := n.release; {
	case n.want():
		return nil
	case p == nil:
		n.release = &pendingRelease{ref: ref, done: make(chan struct{})}
	default:
		if p.ref.Visit == "" {
			ref.Visit = "" // the release that waits ends the lease of every visit
		}
		ref.KeepClosed, ref.RejectIDFor = max(ref.KeepClosed, p.ref.KeepClosed), max(ref.RejectIDFor, p.ref.RejectIDFor)
		p.ref = ref
	}
	return n.release
}

// wantUndo queues an undo. It reports whether no request is under way: the undo is then
// marked as under way, and the caller sends it at once. The caller holds mu.
func (n *nodeLease) wantUndo() (now bool) {
	now = n.want()
	n.undo = n.undo || !now
	return now
}

// want counts a release or an undo, and closes the node's gate for the key. It reports
// whether no request is under way, and marks one as under way. The caller holds mu.
func (n *nodeLease) want() (now bool) {
	n.releases++
	if !n.gated {
		n.node.closeGate(n.lease.key)
	}
	now, n.gated, n.busy = !n.busy, true, true
	return now
}

// needsUndo reports whether the node may have a grant that must be undone. A waiter asks
// again soon, so a request whose effect is uncertain need not be undone. The caller holds
// mu.
func (n *nodeLease) needsUndo() bool {
	return n.state == granted || n.state == unknown && !n.lease.mayWait()
}

// releaseNow sends a release or an undo that was marked as under way.
func (n *nodeLease) releaseNow(ctx context.Context, ref driver.Ref, undo bool) (driver.Reply, error) {
	reply, err := n.sendRelease(ctx, ref, undo)
	n.finish()
	return reply, err
}

// finish ends the request that was under way, and sends the releases that were queued
// behind it.
func (n *nodeLease) finish() {
	l := n.lease
	for {
		l.mu.Lock()
		p, undo := n.release, n.undo
		if n.release, n.undo = nil, false; p == nil && !undo {
			n.becomeIdle()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if p != nil {
			p.reply, p.err = n.sendQueued(p.ref, false)
		}
		if undo {
			_, _ = n.sendQueued(driver.Ref{Key: l.key, ID: l.id}, true)
		}
		if p != nil {
			close(p.done)
		}
	}
}

// becomeIdle notes that no request is under way. The caller holds mu.
func (n *nodeLease) becomeIdle() {
	if n.busy = false; n.gated {
		n.gated = false
		n.node.openGate(n.lease.key)
	}
	if n.idle != nil {
		close(n.idle)
		n.idle = nil
	}
}

// sendQueued sends a release that was queued, or an undo if it is still needed.
func (n *nodeLease) sendQueued(ref driver.Ref, undo bool) (driver.Reply, error) {
	n.lease.mu.Lock()
	skip := undo && !n.needsUndo()
	n.lease.mu.Unlock()
	if skip {
		return driver.Reply{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), n.lease.s.timeout, errNoAnswer)
	defer cancel()
	return n.sendRelease(ctx, ref, undo)
}

// sendRelease sends a release and stores the outcome. An undo releases the last visit's
// grant, and so only a grant that no caller has received. After an acquire that may still
// arrive, the id is rejected.
func (n *nodeLease) sendRelease(ctx context.Context, ref driver.Ref, undo bool) (reply driver.Reply, err error) {
	l := n.lease
	l.mu.Lock()
	if undo {
		ref.Visit = n.visit
	}
	if l.phase >= ended && n.unanswered && ref.RejectIDFor == 0 {
		ref.RejectIDFor = requestLife(l.req.TTL)
	}
	lag := n.tokenToRaise(ref)
	// The release of an unanswered request is also sent to a node that hangs, because the
	// request takes effect when the node continues.
	must := n.unanswered
	l.mu.Unlock()
	if !n.node.begin(must) {
		return driver.Reply{}, errHangs
	}
	if lag > 0 {
		half, cancel := context.WithTimeout(ctx, l.s.timeout/2)
		n.node.Renew(half, []driver.Ref{{Key: ref.Key, ID: ref.ID, TTL: check.MinTTL, Token: lag}}, func(int, driver.Reply, error) {})
		cancel()
	}
	reply, err = n.node.Release(ctx, ref)
	n.node.end(ctx, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	return n.releaseAnswered(ref, undo, reply, err), err
}

// releaseAnswered stores the answer to a release, and returns the reply for the caller.
func (n *nodeLease) releaseAnswered(ref driver.Ref, undo bool, reply driver.Reply, err error) driver.Reply {
	l := n.lease
	switch {
	case err != nil && !definite(err):
		n.avoidUntil = time.Now().Add(requestLife(l.req.TTL))
	case err != nil:
	case reply.State == driver.Busy && undo:
		n.state = asked // the lease belongs to another visit too
		if l.refused {
			n.avoidUntil = time.Now().Add(l.req.TTL)
		}
	case reply.State == driver.Busy: // another visit's grant may still need an undo
	case reply.State == driver.Gone && !reply.Broken && n.state == released && l.phase != reported:
		reply.State = driver.Released // by an earlier try
	default:
		if n.state, n.token = absent, 0; reply.State == driver.Released {
			n.state = released
		}
		n.unanswered = n.unanswered && ref.RejectIDFor == 0
	}
	return reply
}

// releaseLeftover releases a lease that a majority does not have, if this process asked for
// it, by a visit, and does not ask again.
func (n *nodeLease) releaseLeftover(ctx context.Context, visit string) error {
	l := n.lease
	ref := driver.Ref{Key: l.key, ID: l.id, Visit: visit}
	l.mu.Lock()
	free := l.phase != held && !l.mayWait() && !n.busy
	if free {
		n.wantRelease(ref)
	}
	l.mu.Unlock()
	if !free {
		return nil
	}
	_, err := n.releaseNow(ctx, ref, false)
	return err
}

// raise raises the token of the lease.
func (n *nodeLease) raise(ctx context.Context, ref driver.Ref) (reply driver.Reply, err error) {
	reply, err = call(ctx, n.node, func(ctx context.Context) (driver.Reply, error) {
		n.node.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { reply, err = r, e })
		return reply, err
	})
	if err != nil {
		return driver.Reply{}, err
	}
	n.lease.mu.Lock()
	defer n.lease.mu.Unlock()
	n.token = max(n.token, reply.Token)
	return reply, nil
}

// raiseIfHeld gives the lease the token of its grant, if it is held and no request is under
// way.
func (n *nodeLease) raiseIfHeld(token int64) {
	l := n.lease
	l.mu.Lock()
	free := l.phase == held && !n.busy
	ref := driver.Ref{Key: l.key, ID: l.id, TTL: l.req.TTL, Token: token, Level: l.reportedToken() > 0}
	l.mu.Unlock()
	if free {
		ctx, cancel := context.WithTimeoutCause(context.Background(), l.s.timeout, errNoAnswer)
		defer cancel()
		_, _ = n.raise(ctx, ref)
	}
}

// tokenToRaise returns the token to which to raise the node before the lease is released
// there, or 0. If a node differed from the majority, the next holder would wait for other
// nodes or write back, and the token of an ended lease cannot be raised. The caller holds
// mu.
func (n *nodeLease) tokenToRaise(ref driver.Ref) int64 {
	l := n.lease
	if n.token == 0 || l.token == 0 || l.phase < ended || ref.Visit != "" || !l.exclusive() {
		return 0 // or another lease has that token
	}
	top := l.token
	for i := range l.nodes {
		top = max(top, l.nodes[i].token)
	}
	if n.token == top {
		return 0
	}
	return top
}
