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
	b := s.newRenewal(ctx, refs, each)
	r := ask(ctx, s, nil, s.allNodes(), s.timeout, func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, b.renewAt(ctx, i)
	})
	var heard []int
	for a, ok := r.nextBefore(b.decided); ok; a, ok = r.nextBefore(b.decided) {
		b.noAnswer(a)
		heard = append(heard, a.node)
	}
	b.separate.Wait()
	r.finish(func(a answer[struct{}]) { b.repair(a.node) })
	for _, i := range heard {
		s.background(func() { b.repair(i) })
	}
}

// renewal is one call of Renew.
type renewal struct {
	s        *Driver
	ctx      context.Context
	sent     time.Time
	refs     []driver.Ref   // that all nodes are asked about
	index    []int          // of them, in the caller's order
	visits   []string       // by which they were asked for here, empty if they were not
	separate sync.WaitGroup // acquires and write-backs for single refs
	decided  chan struct{}  // closed when all refs are

	mu    sync.Mutex
	each  func(int, driver.Reply, error)
	votes []votes // by ref
	open  int     // refs that are not decided
}

// votes are the nodes' answers about one ref.
type votes struct {
	tally
	answered set // nodes that have answered
	done     bool
	won      bool
	token    int64
	// levels reports whether token is the holder's, and replaces greater ones too.
	levels bool
}

func (s *Driver) newRenewal(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) *renewal {
	b := &renewal{s: s, ctx: ctx, sent: clock.Now(), each: each, decided: make(chan struct{})}
	places := make(chan struct{}, maxAcquires)
	for i, ref := range refs {
		err := s.tooLong(ref.TTL)
		l := s.lookup(leaseKey{ref.Key, ref.ID})
		switch {
		case err != nil:
			b.mu.Lock()
			each(i, driver.Reply{}, err)
			b.mu.Unlock()
		case l != nil && l.waiting():
			l.use()
			b.separate.Go(func() {
				defer s.leave(l)
				places <- struct{}{}
				defer func() { <-places }()
				reply, err := s.acquireAgain(ctx, l, ref)
				b.mu.Lock()
				defer b.mu.Unlock()
				each(i, reply, err)
			})
		default:
			b.refs, b.index, b.visits = append(b.refs, ref), append(b.index, i), append(b.visits, s.visitOf(l))
		}
		if l != nil {
			s.leave(l)
		}
	}
	b.votes, b.open = make([]votes, len(b.refs)), len(b.refs)
	for k := range b.votes {
		b.votes[k].tally = *s.tally()
	}
	if b.open == 0 {
		close(b.decided)
	}
	return b
}

// waiting reports whether the lease is one that waits to be granted.
func (l *lease) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.held && l.mayWait()
}

// acquireAgain repeats the request for a waiting lease, unless it has been given up.
func (s *Driver) acquireAgain(ctx context.Context, l *lease, ref driver.Ref) (driver.Reply, error) {
	l.mu.Lock()
	req, over := l.req, l.ended
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
func (b *renewal) renewAt(ctx context.Context, i int) error {
	if len(b.refs) == 0 {
		return nil
	}
	refs := make([]driver.Ref, len(b.refs))
	for k, ref := range b.refs {
		ref.HintAddress = b.s.address(i, ref.HintAddress, ref.TicketTTL > 0)
		if ref.Visit != "" {
			ref.Visit = b.s.visitFor(ref.Visit)
		}
		refs[k] = ref
	}
	n := b.s.nodes[i]
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
	v := &b.votes[k]
	if !v.answered.has(a.node) {
		v.answered = v.answered.with(a.node)
		v.add(a)
		b.decide(k, v)
	}
}

// decide decides about a ref if the answers suffice. The caller holds mu.
func (b *renewal) decide(k int, v *votes) {
	if v.done {
		return
	}
	switch {
	case len(v.granted) >= v.need:
		if v.left > 0 && b.mayBeRaised(k, v) {
			return // the remaining answers show whether a majority has the greater token
		}
		b.win(k, v)
	case v.lost():
		v.done = true
		b.markLost(k)
		reply, err := b.s.notRenewed(&v.tally, true)
		b.report(k, reply, err)
	case v.left == 0 && v.blocks(len(v.refused)):
		v.done = true
		reply, err := b.s.notRenewed(&v.tally, false)
		b.report(k, reply, err)
	case v.left == 0:
		v.done = true
		b.report(k, driver.Reply{}, b.s.undecided(b.ctx, v.failed))
	}
}

// mayBeRaised reports whether the token of a lease may have been raised: by this renewal,
// or by that of another lease of its owner.
func (b *renewal) mayBeRaised(k int, v *votes) bool {
	ref := b.refs[k]
	if ref.Token > 0 {
		return b.s.fencing
	}
	l := b.s.lookup(leaseKey{ref.Key, ref.ID})
	if l == nil {
		return false
	}
	defer b.s.leave(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	return b.s.fencing && l.req.Reenter && v.greatestToken() > l.token
}

// report reports the decision about a ref. The caller holds mu.
func (b *renewal) report(k int, reply driver.Reply, err error) {
	b.each(b.index[k], reply, err)
	if b.open--; b.open == 0 {
		close(b.decided)
	}
}

// win decides that a lease is renewed. The caller holds mu.
func (b *renewal) win(k int, v *votes) {
	v.done, v.won = true, true
	token, known := b.extend(k, v)
	if known || !b.s.fencing {
		v.token, v.levels = token, known && b.mayLevel(k)
		b.report(k, v.grant(token), nil)
		return
	}
	if token, ok := v.agreedToken(); ok {
		v.token = token
		b.report(k, v.grant(token), nil)
		return
	}
	t := v.tally
	t.granted = slices.Clone(t.granted)
	b.separate.Go(func() {
		token, err := b.s.writeBack(b.ctx, nil, &t, b.refs[k])
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			v.won = false
			b.report(k, driver.Reply{}, err)
			return
		}
		v.token = token
		b.report(k, t.grant(token), nil)
	})
}

// extend records that a lease was renewed, and returns its token if it is known here: the
// token of the grant, unless a majority has a greater token.
func (b *renewal) extend(k int, v *votes) (token int64, known bool) {
	ref := b.refs[k]
	l := b.s.lookup(leaseKey{ref.Key, ref.ID})
	if l == nil {
		return 0, false
	}
	defer b.s.leave(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lapse(); !l.held {
		return 0, false
	}
	l.req.TTL = ref.TTL
	l.lastFor(b.sent, ref.TTL)
	l.req.Visit = cmp.Or(ref.Visit, l.req.Visit) // by which a node is asked that has forgotten it
	l.keepFor(ref.TTL)
	switch {
	case b.s.fencing && ref.Level:
		l.token = v.majorityToken()
	case b.s.fencing && (ref.Token > 0 || l.req.Reenter):
		l.token = max(l.token, v.majorityToken())
	}
	return l.token, true
}

// mayLevel reports whether this process decides the token of a lease.
func (b *renewal) mayLevel(k int) bool {
	l := b.s.lookup(leaseKey{b.refs[k].Key, b.refs[k].ID})
	if l == nil {
		return false
	}
	defer b.s.leave(l)
	return b.refs[k].Token == 0 && l.reportedToken() > 0
}

// lost reports whether a majority does not have the lease. A node that refuses the
// renewal as such may have it.
func (v *votes) lost() bool {
	n := 0
	for _, a := range v.refused {
		if !timing.Refused(a.err) {
			n++
		}
	}
	return v.blocks(n)
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

// markLost notes that a lease was lost.
func (b *renewal) markLost(k int) {
	ref := b.refs[k]
	if l := b.s.lookup(leaseKey{ref.Key, ref.ID}); l != nil {
		l.markLost()
		b.s.leave(l)
	}
}

// repair corrects a node after the decisions: it raises a token there, acquires a lease
// again that the node has lost, or releases a lease that the majority does not have.
func (b *renewal) repair(i int) {
	n := b.s.nodes[i]
	if !n.repairing.TryLock() {
		return // the next renewal comes soon
	}
	defer n.repairing.Unlock()
	for k, ref := range b.refs {
		do := b.repairOf(i, k)
		if do == nil {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), b.s.timeout, errNoAnswer)
		err := do(ctx, i, ref)
		cancel()
		if err != nil && !definite(err) {
			return // the node hangs
		}
	}
}

// repairOf returns the repair of a node for a ref, or nil.
func (b *renewal) repairOf(i, k int) func(context.Context, int, driver.Ref) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ref := &b.votes[k], b.refs[k]
	a, ok := v.of(i)
	granted := a.value.State == driver.Granted
	switch {
	case !ok:
		return nil
	case v.won && granted && (a.value.Token < v.token || a.value.Token > v.token && v.levels):
		token, level := v.token, v.levels
		return func(ctx context.Context, i int, ref driver.Ref) error {
			ref.Token, ref.Level, ref.Visit = token, level, ""
			_, err := b.s.raiseAt(ctx, i, ref)
			return err
		}
	case v.won && a.value.State == driver.Gone && !timing.TooLate(clock.Now(), b.sent, ref.TTL, timing.Drift):
		return b.s.reacquire
	case !v.won && granted && v.lost() && b.visits[k] != "":
		visit := b.visits[k]
		return func(ctx context.Context, i int, ref driver.Ref) error {
			return b.s.releaseLeftover(ctx, i, driver.Ref{Key: ref.Key, ID: ref.ID, Visit: visit})
		}
	}
	return nil
}

// releaseLeftover releases at one node a lease that a majority does not have, if this
// process asked for it and does not ask again.
func (s *Driver) releaseLeftover(ctx context.Context, i int, ref driver.Ref) error {
	l := s.use(leaseKey{ref.Key, ref.ID})
	defer s.leave(l)
	l.mu.Lock()
	free := !l.held && !l.mayWait() && !l.nodes[i].queue.busy
	if free {
		s.queueRelease(l, i, ref, false)
	}
	l.mu.Unlock()
	if !free {
		return nil
	}
	_, err := s.releaseNow(ctx, l, i, ref, false)
	return err
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

// reacquire acquires a lease again at a node that has forgotten it, after a majority has
// renewed it.
func (s *Driver) reacquire(ctx context.Context, i int, ref driver.Ref) error {
	l := s.lookup(leaseKey{ref.Key, ref.ID})
	if l == nil {
		return nil
	}
	defer s.leave(l)
	l.mu.Lock()
	req, token := l.req, l.token
	held := l.held && !l.nodes[i].queue.busy && !time.Now().Before(l.nodes[i].avoidUntil)
	if held {
		l.nodes[i].queue.busy = true // in the same step, so that a release comes after it
	}
	l.mu.Unlock()
	if !held {
		return nil
	}
	req.TTL, req.TicketTTL = ref.TTL, 0
	if token > 0 {
		req.MinToken = token - 1
	}
	_, err := s.sendAcquire(ctx, l, i, s.request(s.nodes[i], req))
	if errors.Is(err, driver.ErrAmnesia) {
		s.checkMarksSoon()
	}
	return err
}
