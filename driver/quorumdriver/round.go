package quorumdriver

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
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

// round is one request to several nodes at once. Its caller takes answers as they arrive
// until it has decided, and then passes a function for later answers to finish.
type round[T any] struct {
	s       *Driver
	leases  []*lease // in use until the last answer has been handled
	caller  context.Context
	ctx     context.Context // of the calls, which outlive the caller's context
	cancel  context.CancelFunc
	answers chan answer[T]
	unread  int           // answers that were not taken from the channel
	awaited set           // nodes that next has not returned
	over    bool          // next waits no longer
	soon    chan struct{} // of nextSoon; closed after slowAfter
	users   atomic.Int32  // calls, the caller until finish, and background work
}

// ask makes a call for each of some nodes; each has limit to answer. The caller counts in
// s.work, and calls finish in the end. The request is about the leases.
func ask[T any](ctx context.Context, s *Driver, which set, limit time.Duration, call func(ctx context.Context, i int) (T, error), leases ...*lease) *round[T] {
	n := which.size()
	r := &round[T]{s: s, leases: leases, caller: ctx, answers: make(chan answer[T], n), unread: n, awaited: which}
	r.ctx, r.cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), min(limit, s.timeout), errNoAnswer)
	for _, l := range leases {
		s.useAgain(l)
	}
	r.users.Store(int32(n) + 1)
	s.work.Add(n)
	for i := range s.nodes {
		if which.has(i) {
			go r.run(i, call)
		}
	}
	return r
}

// query asks some nodes by one call to each.
func query[T any](ctx context.Context, s *Driver, which set, limit time.Duration, f func(context.Context, *node) (T, error), leases ...*lease) *round[T] {
	return ask(ctx, s, which, limit, func(ctx context.Context, i int) (T, error) {
		n := s.nodes[i]
		return call(ctx, n, func(ctx context.Context) (T, error) { return f(ctx, n) })
	}, leases...)
}

// run makes one call.
func (r *round[T]) run(i int, call func(ctx context.Context, i int) (T, error)) {
	defer r.s.work.Done()
	defer r.leave()
	a := answer[T]{node: i}
	if a.value, a.err = call(r.ctx, i); a.err != nil && !definite(a.err) && errors.Is(context.Cause(r.ctx), errNoAnswer) {
		a.err = errNoAnswer // clearer than the client's own error
	}
	r.answers <- a
}

// next returns the next answer, or an error in its place if the node has not answered in
// time or the caller's context has ended. It returns false after the last node.
func (r *round[T]) next() (answer[T], bool) { return r.nextBefore(nil) }

// nextBefore is next, except that it returns false when end is closed.
func (r *round[T]) nextBefore(end <-chan struct{}) (a answer[T], ok bool) {
	switch {
	case r.awaited == 0:
		return a, false
	case r.over:
		return r.unanswered(), true
	}
	select {
	case a = <-r.answers:
		return r.take(a), true
	case <-end:
		return a, false
	case <-r.caller.Done():
		r.cancel()
	case <-r.ctx.Done():
	}
	select {
	case a = <-r.answers:
		return r.take(a), true
	default:
		r.over = true
		return r.unanswered(), true
	}
}

func (r *round[T]) take(a answer[T]) answer[T] {
	r.unread--
	r.awaited = r.awaited.without(a.node)
	return a
}

// unanswered returns the error of a node that has not answered.
func (r *round[T]) unanswered() answer[T] {
	i := bits.TrailingZeros32(uint32(r.awaited))
	r.awaited = r.awaited.without(i)
	if r.caller.Err() != nil {
		return answer[T]{node: i, err: context.Cause(r.caller)}
	}
	return answer[T]{node: i, err: errNoAnswer}
}

// nextSoon is next, except that it does not wait for slow nodes, and waits for the others
// for slowAfter in all.
func (r *round[T]) nextSoon() (answer[T], bool) {
	if !r.worthWaiting() {
		return answer[T]{}, false
	}
	if r.soon == nil {
		r.soon = make(chan struct{})
		time.AfterFunc(slowAfter, func() { close(r.soon) })
	}
	return r.nextBefore(r.soon)
}

// worthWaiting reports whether an answer has arrived, or may arrive from a node that is not
// slow. It also returns true if the time is over, so that next reports the nodes that did
// not answer.
func (r *round[T]) worthWaiting() bool {
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
	if late != nil && r.unread > 0 {
		r.background(func() {
			for range r.unread - 1 {
				a := <-r.answers
				r.background(func() { late(a) })
			}
			late(<-r.answers)
		})
	}
	r.leave()
}

// background runs f in the background, as a part of the round.
func (r *round[T]) background(f func()) {
	r.users.Add(1)
	r.s.background(func() {
		defer r.leave()
		f()
	})
}

// leave ends a part of the round. The last one frees the context of the calls and the
// leases.
func (r *round[T]) leave() {
	if r.users.Add(-1) > 0 {
		return
	}
	r.cancel()
	for _, l := range r.leases {
		r.s.leave(l)
	}
}
