package quorumdriver

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"time"
)

// answer is what one node said to one question.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// set is a set of nodes, one bit each.
type set uint32

func (s set) has(i int) bool    { return s&(1<<i) != 0 }
func (s set) with(i int) set    { return s | 1<<i }
func (s set) without(i int) set { return s &^ (1 << i) }
func (s set) size() int         { return bits.OnesCount32(uint32(s)) }

// everyone is the set of all nodes.
func (s *Driver) everyone() set { return 1<<len(s.nodes) - 1 }

// round is one question to several nodes at once. Its caller takes the answers
// as they come, until it has decided, and says what becomes of the rest.
type round[T any] struct {
	s      *Driver
	lease  *lease // in use until the last call has landed; may be nil
	caller context.Context
	ctx    context.Context // of the calls, which outlive the caller's patience
	cancel context.CancelFunc
	call   func(ctx context.Context, i int) (T, error)

	answers chan answer[T]
	left    int           // nodes that next has not told of
	over    chan struct{} // closed by finish
	late    func(answer[T])

	mu     sync.Mutex
	flying int // calls under way
	waited set // of which next will tell
}

// ask puts a question about l to some nodes. Each has limit to answer. The caller
// calls finish in the end, and counts in s.work until then.
func ask[T any](ctx context.Context, s *Driver, l *lease, which set, limit time.Duration, call func(ctx context.Context, i int) (T, error)) *round[T] {
	n := which.size()
	r := &round[T]{
		s: s, lease: l, caller: ctx, call: call, answers: make(chan answer[T], n), left: n,
		over: make(chan struct{}), flying: n, waited: which,
	}
	r.ctx, r.cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), min(limit, s.timeout), errNoAnswer)
	if n == 0 {
		r.cancel()
		return r
	}
	r.share()
	s.work.Add(n)
	for i := range s.nodes {
		if which.has(i) {
			s.crew.run(job{r, i})
		}
	}
	return r
}

// do calls one node and hands its answer to next, or to late if next has not waited
// for it.
func (r *round[T]) do(i int) {
	defer r.s.work.Done()
	defer r.landed()
	a := answer[T]{node: i}
	if a.value, a.err = r.call(r.ctx, i); a.err != nil && !definite(a.err) && errors.Is(context.Cause(r.ctx), errNoAnswer) {
		a.err = errNoAnswer // which says more than what the client made of it
	}
	r.mu.Lock()
	waited := r.waited.has(i)
	if waited {
		r.waited = r.waited.without(i)
		r.answers <- a
	}
	r.mu.Unlock()
	if waited {
		return
	}
	<-r.over
	if r.late != nil {
		r.late(a)
	}
}

// landed ends one of the calls, and frees their context with the last.
func (r *round[T]) landed() {
	r.mu.Lock()
	r.flying--
	last := r.flying == 0
	r.mu.Unlock()
	if last {
		r.cancel()
		r.leave()
	}
}

func (r *round[T]) share() {
	if r.lease != nil {
		r.lease.share()
	}
}

func (r *round[T]) leave() {
	if r.lease != nil {
		r.s.leave(r.lease)
	}
}

// next returns the next answer, or an error in its place if the node has not
// answered in time or the caller's context has ended; false after the last node.
func (r *round[T]) next() (answer[T], bool) { return r.nextBefore(nil) }

// nextBefore is next that gives up, and tells of no node, when end is closed.
func (r *round[T]) nextBefore(end <-chan struct{}) (answer[T], bool) {
	if r.left == 0 {
		return answer[T]{}, false
	}
	select {
	case a := <-r.answers:
		r.left--
		return a, true
	case <-end:
		return answer[T]{}, false
	case <-r.caller.Done():
		r.cancel()
	case <-r.ctx.Done():
	}
	r.left--
	return r.missing(), true
}

// missing tells of a node that has not answered, after those that have.
func (r *round[T]) missing() answer[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case a := <-r.answers:
		return a
	default:
	}
	i := bits.TrailingZeros32(uint32(r.waited))
	r.waited = r.waited.without(i)
	return answer[T]{node: i, err: r.why()}
}

// why is the error of a node that has not answered.
func (r *round[T]) why() error {
	if r.caller.Err() != nil {
		return context.Cause(r.caller)
	}
	return errNoAnswer
}

// waits reports whether somebody has not answered yet who is worth waiting for, or
// of whom it is known that nothing will come any more.
func (r *round[T]) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) > 0 || r.ctx.Err() != nil {
		return true
	}
	for i, n := range r.s.nodes {
		if r.waited.has(i) && !n.hushed() {
			return true
		}
	}
	return false
}

// finish ends the round. What comes now, and what came unasked for, goes to late,
// in the background; nil lets it go.
func (r *round[T]) finish(late func(answer[T])) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waited, r.late = 0, late
	close(r.over)
	for len(r.answers) > 0 {
		if a := <-r.answers; late != nil {
			r.share()
			r.s.background(func() {
				defer r.leave()
				late(a)
			})
		}
	}
}
