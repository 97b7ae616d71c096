package quorumdriver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// maxAcquires bounds the waiters for which one Renew asks at the same time.
const maxAcquires = 64

// Renew implements [driver.Driver]. A lease is renewed when a majority has renewed it.
// Nodes that have lost it, for example by a restart, are then asked for it again, in the
// background. A lease that a majority does not have is Gone, and the remaining nodes are
// released.
//
// A ref whose id waits, by an Acquire of this process, asks for the lock, and is
// answered Granted or Busy.
func (s *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if len(refs) == 0 {
		return
	}
	if err := s.enter(ctx); err != nil {
		for i := range refs {
			each(i, driver.Reply{}, err)
		}
		return
	}
	defer s.work.Done()
	b := &renewal{s: s, ctx: ctx, sent: clock.Now(), each: each, decided: make(chan struct{})}
	leases := b.divide(refs)
	if len(leases) == 0 {
		b.separate.Wait()
		return
	}
	r := ask(ctx, s, s.allNodes(), s.timeout, func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, b.renewAt(ctx, s.nodes[i])
	}, leases...)
	for _, l := range leases {
		s.leave(l) // the round uses it
	}
	var answered set
	for a, ok := r.nextBefore(b.decided); ok; a, ok = r.nextBefore(b.decided) {
		b.noAnswer(a)
		answered = answered.with(a.node)
	}
	b.separate.Wait()
	for i := range s.nodes {
		if answered.has(i) {
			r.background(func() { b.repair(i) })
		}
	}
	r.finish(func(a answer[struct{}]) { b.repair(a.node) })
}

// renewal is one call of Renew.
type renewal struct {
	s        *Driver
	ctx      context.Context
	sent     time.Time
	separate sync.WaitGroup // acquires and write-backs for single refs
	decided  chan struct{}  // closed when all refs are

	mu   sync.Mutex
	each func(int, driver.Reply, error)
	refs []renewed // that all nodes are asked about
	open int       // refs that are not decided
}

// renewed is a ref, and the nodes' answers about it.
type renewed struct {
	tally
	ref      driver.Ref
	index    int    // in the caller's order
	lease    *lease // in use by the round
	visit    string // by which the lease was asked for here, empty if it was not
	answered set    // nodes that have answered
	done     bool
	won      bool
	token    int64
	// levels reports whether token is the holder's, and replaces greater ones too.
	levels bool
}

// divide begins an acquire for each ref that waits, and keeps the other refs for the round.
// It returns their leases, in use.
func (b *renewal) divide(refs []driver.Ref) (leases []*lease) {
	var places chan struct{}
	leases, b.refs = make([]*lease, 0, len(refs)), make([]renewed, 0, len(refs))
	for i, ref := range refs {
		if err := b.s.tooLong(ref.TTL); err != nil {
			b.answer(i, driver.Reply{}, err)
			continue
		}
		l := b.s.use(leaseKey{ref.Key, ref.ID})
		visit, waits := l.askedBy()
		if !waits {
			b.refs = append(b.refs, renewed{tally: b.s.newTally(), ref: ref, index: i, lease: l, visit: visit})
			leases = append(leases, l)
			continue
		}
		if places == nil {
			places = make(chan struct{}, maxAcquires)
		}
		b.separate.Go(func() {
			defer b.s.leave(l)
			places <- struct{}{}
			defer func() { <-places }()
			reply, err := b.s.acquireAgain(b.ctx, l, ref)
			b.answer(i, reply, err)
		})
	}
	b.open = len(b.refs)
	return leases
}

// answer answers the caller about a ref.
func (b *renewal) answer(i int, reply driver.Reply, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each(i, reply, err)
}

// askedBy returns the visit by which this process has asked for the lease, empty if it has
// not, and reports whether the lease waits to be granted.
func (l *lease) askedBy() (visit string, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.askedHere() {
		visit = l.s.visitFor(l.req.Visit)
	}
	return visit, l.phase != held && l.mayWait()
}

// acquireAgain repeats the request for a waiting lease, unless it has been given up.
func (s *Driver) acquireAgain(ctx context.Context, l *lease, ref driver.Ref) (driver.Reply, error) {
	l.mu.Lock()
	req, over := l.req, l.phase >= ended
	l.keepFor(max(ref.TTL, ref.TicketTTL))
	l.mu.Unlock()
	if over {
		return driver.Reply{}, nil // Gone
	}
	req.TTL, req.Visit = ref.TTL, cmp.Or(ref.Visit, req.Visit)
	if ref.TicketTTL > 0 {
		req.TicketTTL, req.HintAddress = ref.TicketTTL, ref.HintAddress
	}
	return s.acquire(ctx, l, req)
}

// renewAt renews at one node.
func (b *renewal) renewAt(ctx context.Context, n *node) error {
	refs := make([]driver.Ref, len(b.refs))
	for k := range b.refs {
		ref := b.refs[k].ref
		ref.HintAddress = b.s.address(n.index, ref.HintAddress, ref.TicketTTL > 0)
		if ref.Visit != "" {
			ref.Visit = b.s.visitFor(ref.Visit)
		}
		refs[k] = ref
	}
	_, err := call(ctx, n, func(ctx context.Context) (struct{}, error) {
		n.Renew(ctx, refs, func(k int, reply driver.Reply, err error) { b.vote(k, answer[driver.Reply]{n.index, reply, err}) })
		return struct{}{}, context.Cause(ctx)
	})
	return err
}

// noAnswer counts a node that has answered about no ref, or not about all.
func (b *renewal) noAnswer(a answer[struct{}]) {
	if a.err == nil {
		return
	}
	for k := range b.refs {
		b.vote(k, answer[driver.Reply]{node: a.node, err: a.err})
	}
}

// vote takes one answer about one ref. The first answer of a node counts.
func (b *renewal) vote(k int, a answer[driver.Reply]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.refs[k]
	if !v.answered.has(a.node) {
		v.answered = v.answered.with(a.node)
		v.add(a)
		b.decide(v)
	}
}

// decide decides about a ref if the answers suffice. The caller holds mu.
func (b *renewal) decide(v *renewed) {
	switch {
	case v.done:
	case len(v.granted) >= v.need:
		if v.left == 0 || !b.mayBeRaised(v) { // otherwise the remaining answers show whether a majority has the greater token
			b.win(v)
		}
	case v.lost():
		v.lease.markLost()
		reply, err := b.s.notRenewed(&v.tally, true)
		b.report(v, reply, err)
	case v.left == 0 && v.blocks(len(v.refused)):
		reply, err := b.s.notRenewed(&v.tally, false)
		b.report(v, reply, err)
	case v.left == 0:
		b.report(v, driver.Reply{}, b.s.undecided(b.ctx, v.failed))
	}
}

// mayBeRaised reports whether the token of a lease may have been raised: by this renewal,
// or by that of another lease of its owner.
func (b *renewal) mayBeRaised(v *renewed) bool {
	v.lease.mu.Lock()
	defer v.lease.mu.Unlock()
	return b.s.fencing && (v.ref.Token > 0 || v.lease.req.Reenter && v.greatestToken() > v.lease.token)
}

// report reports the decision about a ref. The caller holds mu.
func (b *renewal) report(v *renewed, reply driver.Reply, err error) {
	v.done = true
	b.each(v.index, reply, err)
	if b.open--; b.open == 0 {
		close(b.decided)
	}
}

// win decides that a lease is renewed. The caller holds mu.
func (b *renewal) win(v *renewed) {
	v.done, v.won = true, true
	var known bool
	v.token, known, v.levels = v.lease.renewed(v, b.sent)
	if !known && b.s.fencing {
		v.token, known = v.agreedToken()
	}
	if known || !b.s.fencing {
		b.report(v, v.grant(v.token), nil)
		return
	}
	t := v.tally
	t.granted = slices.Clone(t.granted)
	b.separate.Go(func() {
		token, err := b.s.writeBack(b.ctx, v.lease, &t, v.ref)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			v.won = false
			b.report(v, driver.Reply{}, err)
			return
		}
		v.token = token
		b.report(v, t.grant(token), nil)
	})
}

// renewed stores that a majority has renewed the lease, and returns its token if it is known
// here: the token of the grant, unless a majority has a greater token. levels reports
// whether this process decides the token.
func (l *lease) renewed(v *renewed, sent time.Time) (token int64, known, levels bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isHeld() {
		return 0, false, false
	}
	l.req.TTL = v.ref.TTL
	l.lastFor(sent, v.ref.TTL)
	l.req.Visit = cmp.Or(v.ref.Visit, l.req.Visit) // by which a node is asked that has forgotten it
	l.keepFor(v.ref.TTL)
	switch {
	case l.s.fencing && v.ref.Level:
		l.token = v.majorityToken()
	case l.s.fencing && (v.ref.Token > 0 || l.req.Reenter):
		l.token = max(l.token, v.majorityToken())
	}
	return l.token, true, v.ref.Token == 0 && l.reportedToken() > 0
}

// lost reports whether a majority does not have the lease. A node that refuses the
// renewal as such may have it.
func (v *renewed) lost() bool {
	return v.blocks(matches(v.refused, func(a answer[driver.Reply]) bool { return !timing.Refused(a.err) }))
}

// notRenewed returns the reply for a lease that a majority does not renew. If the lease is
// lost, errors of nodes that refuse the renewal as such are left out, since the caller
// would keep the lease; if it is not lost, only such an error is returned, since any other
// error would end it.
func (s *Driver) notRenewed(t *tally, lost bool) (driver.Reply, error) {
	finals, gone := t.refusals()
	i := slices.IndexFunc(finals, func(a answer[driver.Reply]) bool { return timing.Refused(a.err) != lost })
	if i < 0 || t.blocks(len(gone)) {
		return goneReplyOf(t.refused), nil
	}
	return driver.Reply{}, s.nodes[finals[i].node].named(finals[i].err)
}

// repair corrects a node after the decisions: it raises a token there, acquires a lease
// again that the node has lost, or releases a lease that the majority does not have.
func (b *renewal) repair(i int) {
	n := b.s.nodes[i]
	if !n.repairing.TryLock() {
		return // the next renewal comes soon
	}
	defer n.repairing.Unlock()
	for k := range b.refs {
		do := b.repairOf(i, &b.refs[k])
		if do == nil {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), b.s.timeout, errNoAnswer)
		err := do(ctx)
		cancel()
		if err != nil && !definite(err) {
			return // the node hangs
		}
	}
}

// repairOf returns the repair of a node for a ref, or nil.
func (b *renewal) repairOf(i int, v *renewed) func(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := v.of(i)
	granted := a.value.State == driver.Granted
	n, ref := &v.lease.nodes[i], v.ref
	switch {
	case !ok:
		return nil
	case v.won && granted && (a.value.Token < v.token || a.value.Token > v.token && v.levels):
		ref.Token, ref.Level, ref.Visit = v.token, v.levels, ""
		return func(ctx context.Context) error {
			_, err := n.raise(ctx, ref)
			return err
		}
	case v.won && a.value.State == driver.Gone && !timing.TooLate(clock.Now(), b.sent, ref.TTL, timing.Drift):
		return func(ctx context.Context) error {
			err := n.reacquire(ctx, ref.TTL)
			if errors.Is(err, driver.ErrAmnesia) {
				b.s.checkMarksSoon()
			}
			return err
		}
	case !v.won && granted && v.lost() && v.visit != "":
		return func(ctx context.Context) error { return n.releaseLeftover(ctx, v.visit) }
	}
	return nil
}

// of returns the answer of a node, if there is one.
func (t *tally) of(i int) (answer[driver.Reply], bool) {
	for _, answers := range [][]answer[driver.Reply]{t.granted, t.refused} {
		for _, a := range answers {
			if a.node == i && a.err == nil {
				return a, true
			}
		}
	}
	return answer[driver.Reply]{}, false
}
