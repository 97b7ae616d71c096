package quorumdriver

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/leasehold-go/leasehold/driver"
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
func (s *Driver) examineSoon() {
	if len(s.exam.turn) == 0 {
		s.background(func() { s.examine(context.Background(), time.Now()) })
	}
}

// examine looks at the marks, because a node refused at some time since then to
// open a room. It reports whether it is worthwhile to ask again.
func (s *Driver) examine(ctx context.Context, since time.Time) bool {
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
func (s *Driver) settleMarks(ctx context.Context) (fine bool) {
	for look := 1; ; look++ {
		m := s.marks(ctx)
		switch {
		case s.compare(m) != nil:
			return false
		case m.unmarked == 0:
			return true
		case m.marked() == 0 && m.unknown == 0:
			done, err := s.setUp(ctx)
			if done || err != nil {
				return done
			}
			look-- // somebody else sets it up, or has done so
		case look == looks:
			s.mark(ctx, m.unmarked, s.quarantine(), "")
			return false
		}
		if !sleep(ctx, spread(lookPause)) {
			return false // somebody else will have to judge
		}
	}
}

// setUp marks nodes that are new, and reports whether it did; an error means that
// a node cannot be reserved by anybody, such as a replica. A look may be old when
// the mark arrives: others may have set the nodes up meanwhile, locked, and one of the
// nodes may have forgotten that. So all are reserved first, one after the other so that
// two who set up do not keep each other from it, and are marked only as long as they
// have kept that; whoever else wants to set up finds a node reserved, or marked.
func (s *Driver) setUp(ctx context.Context) (done bool, err error) {
	by := rand.Text()
	for i := range s.nodes {
		if !s.guarded().has(i) {
			continue
		}
		if ok, err := s.reserve(ctx, i, by); !ok || err != nil {
			return false, err
		}
	}
	s.mark(ctx, s.guarded(), 0, by)
	return s.marks(ctx).unmarked == 0, nil
}

// reserve reserves a node for as long as reserving and marking all may take.
func (s *Driver) reserve(ctx context.Context, i int, by string) (bool, error) {
	life := time.Duration(len(s.nodes)+1) * s.timeout
	r := ask(ctx, s, nil, set(0).with(i), s.timeout, func(ctx context.Context, i int) (ok bool, err error) {
		err = s.nodes[i].call(ctx, func(ctx context.Context) (err error) {
			ok, err = s.nodes[i].marker.Reserve(ctx, by, life)
			return err
		})
		return ok, err
	})
	defer r.finish(nil)
	a, _ := r.next()
	return a.value, a.err
}

// marks is who of the guarded nodes carries a mark.
type marks struct {
	names    map[int]string // by node, of those that carry one
	unmarked set
	unknown  int
}

func (m *marks) marked() int { return len(m.names) }

// marks looks at the marks of the nodes, and waits for all that answer in time.
func (s *Driver) marks(ctx context.Context) marks {
	return s.lookAt(ctx, func(*round[marked], *marks) bool { return true })
}

// marked is what a node says of its mark.
type marked struct {
	mark driver.Mark
	ok   bool
}

// lookAt looks at the marks of the nodes for as long as it is wanted.
func (s *Driver) lookAt(ctx context.Context, more func(*round[marked], *marks) bool) (m marks) {
	m.names = make(map[int]string)
	r := ask(ctx, s, nil, s.guarded(), s.timeout, func(ctx context.Context, i int) (v marked, err error) {
		err = s.nodes[i].call(ctx, func(ctx context.Context) (err error) {
			v.mark, v.ok, err = s.nodes[i].marker.Marked(ctx)
			return err
		})
		return v, err
	})
	defer r.finish(nil)
	for more(r, &m) {
		a, ok := r.next()
		switch {
		case !ok:
			return m
		case a.err != nil:
			m.unknown++
		case a.value.ok:
			m.names[a.node] = a.value.mark.Name
		default:
			m.unmarked = m.unmarked.with(a.node)
		}
	}
	return m
}

// mark sets the marks of some nodes, of those that are reserved under by if that is
// not empty.
func (s *Driver) mark(ctx context.Context, nodes set, quarantine time.Duration, by string) {
	r := ask(ctx, s, nil, nodes, s.timeout, func(ctx context.Context, i int) (struct{}, error) {
		return struct{}{}, s.nodes[i].call(ctx, func(ctx context.Context) error {
			return s.nodes[i].marker.Mark(ctx, driver.Mark{Name: s.markName(), Quarantine: quarantine}, by)
		})
	})
	defer r.finish(nil)
	for _, ok := r.next(); ok; _, ok = r.next() {
	}
}

func (s *Driver) guarded() (which set) {
	for i, n := range s.nodes {
		if n.marker != nil {
			which = which.with(i)
		}
	}
	return which
}
