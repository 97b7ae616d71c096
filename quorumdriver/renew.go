package quorumdriver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// asking bounds how many of those who wait are asked for at once by one Renew.
const asking = 64

// Renew implements [driver.Driver]. A lease is renewed when a majority has
// renewed it; nodes that have forgotten it, as after a restart, are then asked
// to let it in again, in the background. A lease that a majority does not have is
// Gone, and the others are released.
//
// An id that waits, which is known from its Acquire here, asks to be let in, and
// is answered Granted or Busy.
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
	r := ask(ctx, s, nil, s.everyone(), s.timeout, func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, b.renewAt(ctx, i)
	})
	var heard []int
	for a, ok := r.nextBefore(b.decided); ok; a, ok = r.nextBefore(b.decided) {
		b.silence(a)
		heard = append(heard, a.node)
	}
	b.apart.Wait()
	r.finish(func(a answer[struct{}]) { b.mend(a.node) })
	for _, i := range heard {
		s.background(func() { b.mend(i) })
	}
}

// renewal is one call of Renew.
type renewal struct {
	s       *Driver
	ctx     context.Context
	sent    time.Time
	refs    []driver.Ref   // that all nodes are asked about
	index   []int          // of them, in the caller's order
	visits  []string       // by which they were asked for here, empty if they were not
	apart   sync.WaitGroup // what is not decided by this alone
	decided chan struct{}  // closed when all refs are

	mu    sync.Mutex
	each  func(int, driver.Reply, error)
	votes []votes // by ref
	open  int     // refs that are not decided
}

// votes are the nodes' answers about one ref.
type votes struct {
	tally
	said  set // nodes whose answer is in
	done  bool
	won   bool
	token int64
	// levels tells that the token is what was told, also where a node has a
	// greater one.
	levels bool
}

func (s *Driver) newRenewal(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) *renewal {
	b := &renewal{s: s, ctx: ctx, sent: time.Now(), each: each, decided: make(chan struct{})}
	places := make(chan struct{}, asking)
	for i, ref := range refs {
		err := s.tooLong(ref.TTL)
		l := s.lookup(leaseKey{ref.Key, ref.ID})
		switch {
		case err != nil:
			b.mu.Lock()
			each(i, driver.Reply{}, err)
			b.mu.Unlock()
		case l != nil && l.asks():
			l.share()
			b.apart.Go(func() {
				defer s.leave(l)
				places <- struct{}{}
				defer func() { <-places }()
				reply, err := s.again(ctx, l, ref)
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

// asks reports whether the lease is one that waits to be granted.
func (l *lease) asks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.held && l.waits()
}

// again asks once more to let in one that waits, unless it has been given up in the
// meantime.
func (s *Driver) again(ctx context.Context, l *lease, ref driver.Ref) (driver.Reply, error) {
	l.mu.Lock()
	req, over := l.req, l.over
	l.remember(max(ref.TTL, ref.TicketTTL))
	l.mu.Unlock()
	if over {
		return driver.Reply{}, nil // Gone
	}
	req.TTL = ref.TTL
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
		refs[k] = ref
	}
	n := b.s.nodes[i]
	return n.call(ctx, func(ctx context.Context) error {
		n.Renew(ctx, refs, func(k int, reply driver.Reply, err error) { b.vote(k, answer[driver.Reply]{i, reply, err}) })
		return context.Cause(ctx)
	})
}

// silence counts a node that has not answered, or not all.
func (b *renewal) silence(a answer[struct{}]) {
	if a.err == nil {
		return
	}
	for k := range b.refs {
		b.vote(k, answer[driver.Reply]{node: a.node, err: a.err})
	}
}

// vote takes one answer about one ref. The first of a node counts.
func (b *renewal) vote(k int, a answer[driver.Reply]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[k]
	if !v.said.has(a.node) {
		v.said = v.said.with(a.node)
		v.add(a)
		b.judge(k, v)
	}
}

// judge decides about a ref if that can be done. The caller holds mu.
func (b *renewal) judge(k int, v *votes) {
	if v.done {
		return
	}
	switch {
	case len(v.granted) >= v.need:
		if v.left > 0 && b.ahead(k, v) {
			return // whether a majority has the greater token the others say
		}
		b.win(k, v)
	case v.blocks(len(v.refused)):
		v.done = true
		b.forget(k)
		reply, err := b.s.gone(&v.tally)
		b.tell(k, reply, err)
	case v.left == 0:
		v.done = true
		b.tell(k, driver.Reply{}, b.s.undecided(b.ctx, v.failed))
	}
}

// ahead reports whether the token of a lease may have been raised: by this renewal,
// or by that of another lease of its owner.
func (b *renewal) ahead(k int, v *votes) bool {
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
	return b.s.fencing && l.req.Reenter && v.greatest() > l.token
}

// tell reports what was decided about a ref. The caller holds mu.
func (b *renewal) tell(k int, reply driver.Reply, err error) {
	b.each(b.index[k], reply, err)
	if b.open--; b.open == 0 {
		close(b.decided)
	}
}

// win is the decision that a lease is renewed. The caller holds mu.
func (b *renewal) win(k int, v *votes) {
	v.done, v.won = true, true
	token, known := b.extend(k, v)
	if known || !b.s.fencing {
		v.token, v.levels = token, known && b.levels(k)
		b.tell(k, v.grant(token), nil)
		return
	}
	if token, ok := v.agreed(); ok {
		v.token = token
		b.tell(k, v.grant(token), nil)
		return
	}
	t := v.tally
	t.granted = slices.Clone(t.granted)
	b.apart.Go(func() {
		token, err := b.s.writeBack(b.ctx, nil, &t, b.refs[k])
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			v.won = false
			b.tell(k, driver.Reply{}, err)
			return
		}
		v.token = token
		b.tell(k, t.grant(token), nil)
	})
}

// extend notes that a lease was renewed, and returns its token if it is known
// here: the one that it has had from the beginning, unless a majority has a
// greater one.
func (b *renewal) extend(k int, v *votes) (token int64, known bool) {
	ref := b.refs[k]
	l := b.s.lookup(leaseKey{ref.Key, ref.ID})
	if l == nil {
		return 0, false
	}
	defer b.s.leave(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return 0, false
	}
	l.req.TTL = ref.TTL
	l.remember(ref.TTL)
	switch {
	case b.s.fencing && ref.Level:
		l.token = v.reached()
	case b.s.fencing && (ref.Token > 0 || l.req.Reenter):
		l.token = max(l.token, v.reached())
	}
	return l.token, true
}

// levels reports whether the token of a lease is for this process to say.
func (b *renewal) levels(k int) bool {
	l := b.s.lookup(leaseKey{b.refs[k].Key, b.refs[k].ID})
	if l == nil {
		return false
	}
	defer b.s.leave(l)
	return b.refs[k].Token == 0 && l.shown() > 0
}

// gone is the answer about a lease that a majority does not have.
func (s *Driver) gone(t *tally) (driver.Reply, error) {
	for _, a := range t.refused {
		if a.err != nil {
			return driver.Reply{}, s.nodes[a.node].named(a.err)
		}
	}
	return lastWord(t.refused), nil
}

// forget notes that a lease was lost.
func (b *renewal) forget(k int) {
	ref := b.refs[k]
	if l := b.s.lookup(leaseKey{ref.Key, ref.ID}); l != nil {
		l.lose()
		b.s.leave(l)
	}
}

// mend does at a node what its answers leave to do, when all is decided: it is
// brought up to a token, asked to let a lease in again that it has forgotten, or
// released of one that the others do not have.
func (b *renewal) mend(i int) {
	n := b.s.nodes[i]
	if !n.heal.TryLock() {
		return // the next renewal comes soon
	}
	defer n.heal.Unlock()
	for k, ref := range b.refs {
		do := b.remedy(i, k)
		if do == nil {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), b.s.timeout, errNoAnswer)
		err := do(ctx, i, ref)
		cancel()
		if err != nil && !definite(err) {
			return // it hangs
		}
	}
}

// remedy is what is to be done at a node about a ref, nil for nothing.
func (b *renewal) remedy(i, k int) func(context.Context, int, driver.Ref) error {
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
			ref.Token, ref.Level = token, level
			_, err := b.s.raiseAt(ctx, i, ref)
			return err
		}
	case v.won && a.value.State == driver.Gone && !timing.TooLate(time.Now(), b.sent, ref.TTL, timing.Drift):
		return b.s.rejoin
	case !v.won && granted && v.blocks(len(v.refused)) && b.visits[k] != "":
		visit := b.visits[k]
		return func(ctx context.Context, i int, ref driver.Ref) error {
			return b.s.remove(ctx, i, driver.Ref{Key: ref.Key, ID: ref.ID, Visit: visit})
		}
	}
	return nil
}

// remove gives back what a node has of a lease that a majority does not have, as far
// as it was asked for here, and is not again.
func (s *Driver) remove(ctx context.Context, i int, ref driver.Ref) error {
	l := s.use(leaseKey{ref.Key, ref.ID})
	defer s.leave(l)
	l.mu.Lock()
	free := !l.held && !l.waits() && !l.at[i].busy
	if free {
		s.parkAt(l, i, ref, false)
	}
	l.mu.Unlock()
	if !free {
		return nil
	}
	_, err := s.depart(ctx, l, i, ref, false)
	return err
}

// of returns what a node answered, if it did.
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

// rejoin asks a node to let a lease in again that a majority has just renewed.
func (s *Driver) rejoin(ctx context.Context, i int, ref driver.Ref) error {
	l := s.lookup(leaseKey{ref.Key, ref.ID})
	if l == nil {
		return nil
	}
	defer s.leave(l)
	l.mu.Lock()
	req, token := l.req, l.token
	held := l.held && !l.at[i].busy && !time.Now().Before(l.at[i].shunned)
	if held {
		l.at[i].busy = true // in the same step, so that a release comes after it
	}
	l.mu.Unlock()
	if !held {
		return nil
	}
	req.TTL, req.TicketTTL = ref.TTL, 0
	if token > 0 {
		req.MinToken = token - 1
	}
	_, err := s.sendAcquire(ctx, l, i, s.request(i, req))
	if errors.Is(err, driver.ErrAmnesia) {
		s.examineSoon()
	}
	return err
}
