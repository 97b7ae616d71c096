package quorumdriver

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// nextRound begins a round, or gives the last one up: what it has not sent yet is
// not sent any more.
func (l *lease) nextRound() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	return l.round
}

// acquireAt asks one node, in a round, to let the lease in, after what is under way
// there.
func (s *Driver) acquireAt(ctx context.Context, l *lease, i, round int, req driver.Request) (driver.Reply, error) {
	if err := s.nodes[i].pass(ctx, l.key); errors.Is(err, errShut) {
		return driver.Reply{State: driver.Busy, RetryAfter: time.Millisecond}, nil
	} else if err != nil {
		return driver.Reply{}, err
	}
	if err := l.begin(ctx, i, round); err != nil {
		return driver.Reply{}, err
	}
	return s.sendAcquire(ctx, l, i, req)
}

// begin marks an acquire at a node as under way, as soon and if it may be sent.
// One at most waits for that.
func (l *lease) begin(ctx context.Context, i, round int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.at[i]
	releases := p.releases
	if p.busy {
		if p.idle != nil {
			return errBusy
		}
		idle := make(chan struct{})
		p.idle = idle
		l.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if p.idle == idle {
			p.idle = nil
		}
	}
	switch {
	case p.busy, l.over, l.round != round, p.releases != releases:
		return errBusy
	case time.Now().Before(p.shunned):
		return errUnsure
	}
	p.busy = true
	return nil
}

// sendAcquire sends an acquire that has begun, and notes what becomes of it.
func (s *Driver) sendAcquire(ctx context.Context, l *lease, i int, req driver.Request) (reply driver.Reply, err error) {
	err = s.nodes[i].call(ctx, func(ctx context.Context) error {
		l.mu.Lock()
		l.at[i].asked, l.at[i].released, l.at[i].visit = true, false, req.Visit
		l.mu.Unlock()
		reply, err = s.nodes[i].Acquire(ctx, req)
		return err
	})
	if err != nil {
		reply = driver.Reply{}
	}
	l.mu.Lock()
	mine := l.at[i].answered(reply, err)
	reply.Replayed = reply.Replayed && (l.held || !mine) // else it is a round that was not won
	l.mu.Unlock()
	s.part(l, i)
	return reply, err
}

// answered takes the answer to an acquire, and reports whether it was asked for
// by us before. A lease that the node has had before, and not from us, is spared by
// the node when we undo it.
func (p *post) answered(reply driver.Reply, err error) (mine bool) {
	mine = p.away || p.vote != none
	switch {
	case err != nil && definite(err):
	case err != nil:
		p.away = true
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

// park reserves the lease at every node for a release, so that no acquire comes
// before it. A node has a parting if its turn is still to come, and none if it may
// be released at once.
func (s *Driver) park(l *lease, ref driver.Ref) (partings []*parting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	partings = make([]*parting, len(l.at))
	for i := range l.at {
		partings[i] = s.parkAt(l, i, ref, false)
	}
	return partings
}

// parkAt is park at one node. The caller holds the lease's mu.
func (s *Driver) parkAt(l *lease, i int, ref driver.Ref, undo bool) *parting {
	p := &l.at[i]
	p.releases++
	switch {
	case !p.busy:
		p.busy = true
		s.nodes[i].shut(l.key)
		return nil
	case p.next == nil:
		p.next = &parting{ref: ref, undo: undo, done: make(chan struct{})}
		s.nodes[i].shut(l.key)
	case !undo:
		if !p.next.undo && p.next.ref.Visit == "" {
			ref.Visit = "" // it ends in any case
		}
		ref.KeepClosed, ref.RejectIDFor = max(ref.KeepClosed, p.next.ref.KeepClosed), max(ref.RejectIDFor, p.next.ref.RejectIDFor)
		p.next.ref, p.next.undo = ref, false
	}
	return p.next
}

// undo gives back what a lost round was granted, and reports whether that is done.
// It waits for the nodes that had granted, until the end of ctx at most; those that
// may have are asked in the background. refused tells that a majority refused the
// round.
func (s *Driver) undo(ctx context.Context, l *lease, refused bool) bool {
	var nodes, sure set
	ref := driver.Ref{Key: l.key, ID: l.id}
	l.mu.Lock()
	l.round++
	l.refused = refused
	for i := range l.at {
		switch p := &l.at[i]; {
		case l.held: // from a request before
		case p.busy:
			s.parkAt(l, i, ref, true)
		case l.undoes(i):
			s.parkAt(l, i, ref, true)
			nodes = nodes.with(i)
			if p.vote == granted {
				sure = sure.with(i)
			}
		}
	}
	l.mu.Unlock()
	if nodes == 0 {
		return true
	}
	r := ask(context.WithoutCancel(ctx), s, l, nodes, s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		return s.depart(ctx, l, i, ref, true)
	})
	defer r.finish(nil)
	for sure != 0 {
		a, ok := r.nextBefore(ctx.Done())
		if !ok || a.err != nil && sure.has(a.node) {
			return false
		}
		sure = sure.without(a.node)
	}
	return true
}

// undoes reports whether there is something to undo at a node. Who waits asks
// again soon, and need not undo what may never have been done. The caller holds mu.
func (l *lease) undoes(i int) bool {
	return l.at[i].vote == granted || l.at[i].vote == unsure && !l.waits()
}

// depart sends a release for which the node was reserved.
func (s *Driver) depart(ctx context.Context, l *lease, i int, ref driver.Ref, undo bool) (driver.Reply, error) {
	reply, err := s.sendRelease(ctx, l, i, ref, undo)
	s.nodes[i].unshut(l.key)
	s.part(l, i)
	return reply, err
}

// part ends what was under way at a node, and sends the release that has waited
// for it.
func (s *Driver) part(l *lease, i int) {
	for {
		l.mu.Lock()
		p := &l.at[i]
		next := p.next
		if p.next = nil; next == nil {
			p.busy = false
			if p.idle != nil {
				close(p.idle)
				p.idle = nil
			}
			l.mu.Unlock()
			return
		}
		idle := next.undo && !l.undoes(i)
		l.mu.Unlock()
		if !idle {
			ctx, cancel := context.WithTimeoutCause(context.Background(), s.timeout, errNoAnswer)
			next.reply, next.err = s.sendRelease(ctx, l, i, next.ref, next.undo)
			cancel()
		}
		s.nodes[i].unshut(l.key)
		close(next.done)
	}
}

// sendRelease sends a release and notes what becomes of it. An undo is one by the
// visit that asked last, for what nobody has been told. After an acquire that
// may still be on its way the id is of no more use.
func (s *Driver) sendRelease(ctx context.Context, l *lease, i int, ref driver.Ref, undo bool) (reply driver.Reply, err error) {
	l.mu.Lock()
	p := &l.at[i]
	if undo {
		ref.Visit = p.visit
	}
	if l.over && p.away && ref.RejectIDFor == 0 {
		ref.RejectIDFor = flight(l.req.TTL)
	}
	// One that was never let in there need not be asked for.
	idle := l.known() && !p.asked && !p.released && ref.KeepClosed == 0 && ref.RejectIDFor == 0
	lag := l.lag(i, ref)
	call := s.nodes[i].call
	if p.away {
		call = s.nodes[i].insist
	}
	l.mu.Unlock()
	if idle {
		return driver.Reply{State: driver.Gone}, nil
	}
	err = call(ctx, func(ctx context.Context) error {
		if lag > 0 && !s.plainMaximum {
			s.level(ctx, i, driver.Ref{Key: ref.Key, ID: ref.ID, TTL: shortest, Token: lag})
		}
		reply, err = s.nodes[i].Release(ctx, ref)
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil && !definite(err):
		p.shunned = time.Now().Add(flight(l.req.TTL))
	case err != nil:
	case reply.State == driver.Gone && !reply.Broken && p.released && !l.told:
		reply.State = driver.Released // by a try before
	case reply.State == driver.Busy:
		p.vote = none // it is not for us to end
		if undo && l.refused {
			p.shunned = time.Now().Add(l.req.TTL)
		}
	default:
		p.asked, p.vote, p.token, p.released = false, none, 0, reply.State == driver.Released
		p.away = p.away && ref.RejectIDFor == 0
	}
	return reply, err
}
