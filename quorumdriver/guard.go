package quorumdriver

import (
	"context"
	"time"
)

// exam sees to it that nodes which lost their data are noticed. One runs at a
// time, and none soon after another.
type exam struct {
	turn chan struct{} // holds a token while one is under way, which guards:
	last time.Time     // when the last one ended
	fine bool          // and found that all nodes serve, or will
}

// examEvery is how often the marks of the nodes are looked at, at most.
const examEvery = time.Second

// looks and lookPause say for how long a node without a mark may only be one of
// a deployment that somebody else is just setting up.
const (
	looks     = 4
	lookPause = 250 * time.Millisecond
)

// examineSoon examines in the background, unless that is under way.
func (s *Store) examineSoon() {
	if len(s.exam.turn) == 0 {
		s.background(func() { s.examine(context.Background(), time.Now()) })
	}
}

// examine looks at the marks, because a node refused at some time since then to
// open a room. It reports whether it is worthwhile to ask again.
func (s *Store) examine(ctx context.Context, since time.Time) bool {
	select {
	case s.exam.turn <- struct{}{}:
		defer func() { <-s.exam.turn }()
	case <-ctx.Done():
		return false
	}
	switch {
	case s.exam.last.IsZero():
	case !s.exam.last.Before(since):
		return s.exam.fine
	case time.Since(s.exam.last) < examEvery:
		return false
	}
	s.exam.fine = s.settleMarks(ctx)
	s.exam.last = time.Now()
	return s.exam.fine
}

// settleMarks sees to it that every node that can be reached has a mark. Those
// without one have lost their data, and are put into quarantine, unless none of
// all the nodes has one: then they are new and serve at once.
func (s *Store) settleMarks(ctx context.Context) (fine bool) {
	for look := 1; ; look++ {
		m := s.marks(ctx)
		switch {
		case m.unmarked == 0:
			return true
		case m.marked == 0 && m.unknown == 0:
			s.mark(ctx, m.unmarked, 0)
			return true
		case look == looks:
			s.mark(ctx, m.unmarked, s.quarantine())
			return false
		}
		if !sleep(ctx, spread(lookPause)) {
			return false // somebody else will have to judge
		}
	}
}

// marks is who of the guarded nodes carries a mark.
type marks struct {
	marked, unknown int
	unmarked        set
}

func (s *Store) marks(ctx context.Context) (m marks) {
	r := ask(ctx, s, nil, s.guarded(), s.timeout, func(ctx context.Context, i int) (ok bool, err error) {
		err = s.nodes[i].call(ctx, func(ctx context.Context) (err error) {
			_, ok, err = s.nodes[i].marker.Marked(ctx)
			return err
		})
		return ok, err
	})
	defer r.finish(nil)
	for a, ok := r.next(); ok; a, ok = r.next() {
		switch {
		case a.err != nil:
			m.unknown++
		case a.value:
			m.marked++
		default:
			m.unmarked = m.unmarked.with(a.node)
		}
	}
	return m
}

// mark sets the marks of some nodes.
func (s *Store) mark(ctx context.Context, nodes set, quarantine time.Duration) {
	r := ask(ctx, s, nil, nodes, s.timeout, func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, s.nodes[i].call(ctx, func(ctx context.Context) error {
			return s.nodes[i].marker.Mark(ctx, quarantine)
		})
	})
	defer r.finish(nil)
	for _, ok := r.next(); ok; _, ok = r.next() {
	}
}

func (s *Store) guarded() (which set) {
	for i, n := range s.nodes {
		if n.marker != nil {
			which = which.with(i)
		}
	}
	return which
}
