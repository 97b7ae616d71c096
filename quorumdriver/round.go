package quorumdriver

import (
	"context"
	"sync"
	"time"
)

// answer is what one node said to one question.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// round is one question to several nodes at once. Its caller takes the answers
// as they come, until it has decided, and says what becomes of the rest.
type round[T any] struct {
	s      *Store
	lease  *lease // in use until the last call has landed; may be nil
	caller context.Context
	ctx    context.Context // of the calls, which outlive the caller's patience
	cancel context.CancelFunc

	answers chan answer[T]
	left    int           // nodes that next has not told of
	over    chan struct{} // closed by finish
	late    func(answer[T])

	mu     sync.Mutex
	calls  int    // under way
	waited []bool // by node: next will tell of it
}

// ask puts a question about l to the nodes, or to all if which is nil. Each has
// limit to answer. The caller calls finish in the end, and counts in s.work until
// then.
func ask[T any](ctx context.Context, s *Store, l *lease, which []int, limit time.Duration, call func(ctx context.Context, i int) (T, error)) *round[T] {
	if which == nil {
		which = s.all()
	}
	r := &round[T]{
		s: s, lease: l, caller: ctx, answers: make(chan answer[T], len(which)), left: len(which),
		over: make(chan struct{}), calls: len(which), waited: make([]bool, len(s.nodes)),
	}
	r.ctx, r.cancel = context.WithTimeoutCause(context.WithoutCancel(ctx), min(limit, s.timeout), errNoAnswer)
	for _, i := range which {
		r.waited[i] = true
	}
	r.share()
	for _, i := range which {
		s.background(func() {
			defer r.landed()
			r.put(i, call)
		})
	}
	return r
}

// put calls one node and hands its answer to next, or to late if that has not
// waited for it.
func (r *round[T]) put(i int, call func(context.Context, int) (T, error)) {
	a := answer[T]{node: i}
	if a.value, a.err = call(r.ctx, i); a.err != nil && !definite(a.err) && context.Cause(r.ctx) == errNoAnswer {
		a.err = errNoAnswer // which says more than what the client made of it
	}
	r.mu.Lock()
	waited := r.waited[i]
	if waited {
		r.waited[i] = false
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
	defer r.mu.Unlock()
	if r.calls--; r.calls == 0 {
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
	return r.missing()
}

// missing tells of a node that has not answered, after those that have.
func (r *round[T]) missing() (answer[T], bool) {
	r.left--
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case a := <-r.answers:
		return a, true
	default:
	}
	for i, waited := range r.waited {
		if waited {
			r.waited[i] = false
			return answer[T]{node: i, err: r.why()}, true
		}
	}
	panic("quorumdriver: more answers than nodes") // left counts them
}

// why is the error of a node that has not answered.
func (r *round[T]) why() error {
	if r.caller.Err() != nil {
		return context.Cause(r.caller)
	}
	return errNoAnswer
}

// waits reports whether somebody has not answered yet who is worth waiting for.
func (r *round[T]) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) > 0 {
		return true
	}
	for i, waited := range r.waited {
		if waited && !r.s.nodes[i].hushed() {
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
	clear(r.waited)
	r.late = late
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

// all are the indices of the nodes.
func (s *Store) all() []int {
	which := make([]int, len(s.nodes))
	for i := range which {
		which[i] = i
	}
	return which
}
