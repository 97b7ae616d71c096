package quorumdriver

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"time"
)

// answer is the answer of one node to one request.
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

// allNodes returns the set of all nodes.
func (s *Driver) allNodes() set { return 1<<len(s.nodes) - 1 }

// round is one request to several nodes at once. The caller takes answers as they arrive
// until it has decided, and then passes a function for later answers to finish.
type round[T any] struct {
	s      *Driver
	lease  *lease // in use until the last call has ended; may be nil
	caller context.Context
	ctx    context.Context // of the calls, which outlive the caller's context
	cancel context.CancelFunc
	call   func(ctx context.Context, i int) (T, error)

	answers  chan answer[T]
	left     int           // nodes that next has not returned
	finished chan struct{} // closed by finish
	late     func(answer[T])

	mu       sync.Mutex
	underWay int // calls under way
	awaited  set // nodes that next has not returned
}

// ask sends a request about l to some nodes; each has limit to answer. The caller counts
// in s.work, and calls finish in the end.
func ask[T any](ctx context.Context, s *Driver, l *lease, which set, limit time.Duration, call func(ctx context.Context, i int) (T, error)) *round[T] {
	n := which.size()
	r := &round[T]{
		s: s, lease: l, caller: ctx, call: call, answers: make(chan answer[T], n), left: n,
		finished: make(chan struct{}), underWay: n, awaited: which,
	}
	r.ctx, r.cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), min(limit, s.timeout), errNoAnswer)
	if n == 0 {
		r.cancel()
		return r
	}
	r.use()
	s.work.Add(n)
	for i := range s.nodes {
		if which.has(i) {
			go r.run(i)
		}
	}
	return r
}

// query makes a call to some nodes, as ask does.
func query[T any](ctx context.Context, s *Driver, l *lease, which set, limit time.Duration, f func(context.Context, *node) (T, error)) *round[T] {
	return ask(ctx, s, l, which, limit, func(ctx context.Context, i int) (T, error) {
		n := s.nodes[i]
		return call(ctx, n, func(ctx context.Context) (T, error) { return f(ctx, n) })
	})
}

// run calls one node, and gives its answer to next, or to late if next has given up the
// node.
func (r *round[T]) run(i int) {
	defer r.s.work.Done()
	defer r.callEnded()
	a := answer[T]{node: i}
	if a.value, a.err = r.call(r.ctx, i); a.err != nil && !definite(a.err) && errors.Is(context.Cause(r.ctx), errNoAnswer) {
		a.err = errNoAnswer // clearer than the client's own error
	}
	r.mu.Lock()
	waited := r.awaited.has(i)
	if waited {
		r.awaited = r.awaited.without(i)
		r.answers <- a
	}
	r.mu.Unlock()
	if waited {
		return
	}
	<-r.finished
	if r.late != nil {
		r.late(a)
	}
}

// callEnded ends one call. The last one frees the context of the calls.
func (r *round[T]) callEnded() {
	r.mu.Lock()
	r.underWay--
	last := r.underWay == 0
	r.mu.Unlock()
	if last {
		r.cancel()
		r.leave()
	}
}

func (r *round[T]) use() {
	if r.lease != nil {
		r.lease.use()
	}
}

func (r *round[T]) leave() {
	if r.lease != nil {
		r.s.leave(r.lease)
	}
}

// next returns the next answer, or an error in its place if the node has not answered in
// time or the caller's context has ended. It returns false after the last node.
func (r *round[T]) next() (answer[T], bool) { return r.nextBefore(nil) }

// nextBefore is next, except that it returns false when end is closed.
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
	return r.unanswered(), true
}

// unanswered returns a buffered answer, or the error of a node that has not answered.
func (r *round[T]) unanswered() answer[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case a := <-r.answers:
		return a
	default:
	}
	i := bits.TrailingZeros32(uint32(r.awaited))
	r.awaited = r.awaited.without(i)
	return answer[T]{node: i, err: r.cause()}
}

// cause returns the error of a node that has not answered.
func (r *round[T]) cause() error {
	if r.caller.Err() != nil {
		return context.Cause(r.caller)
	}
	return errNoAnswer
}

// worthWaiting reports whether an answer has arrived, or may arrive from a node that is not
// slow. It also returns true if the time is over, so that next reports the nodes that did
// not answer.
func (r *round[T]) worthWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) > 0 || r.ctx.Err() != nil {
		return true
	}
	for i, n := range r.s.nodes {
		if r.awaited.has(i) && !n.slow() {
			return true
		}
	}
	return false
}

// finish ends the round. It passes the answers that were not taken, and later ones, to
// late, in the background; nil drops them.
func (r *round[T]) finish(late func(answer[T])) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaited, r.late = 0, late
	close(r.finished)
	for len(r.answers) > 0 {
		if a := <-r.answers; late != nil {
			r.use()
			r.s.background(func() {
				defer r.leave()
				late(a)
			})
		}
	}
}
