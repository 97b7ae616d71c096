package quorumdriver

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// markCheck finds nodes that lost their data. One check runs at a time, with a pause
// between two checks.
type markCheck struct {
	turn chan struct{} // holds a token while one is under way, which guards:
	last time.Time     // when the last one ended
	ok   bool          // and found that all nodes serve, or will
}

// markCheckInterval is the least time between two checks of the marks.
const markCheckInterval = time.Second

// maxLooks and lookPause bound how long a node without a mark may belong to a quorum
// that another process is setting up.
const (
	maxLooks  = 4
	lookPause = 250 * time.Millisecond
)

// checkMarksSoon checks the marks in the background, unless a check is under way.
func (s *Driver) checkMarksSoon() {
	if len(s.markCheck.turn) == 0 {
		s.background(func() { s.checkMarks(s.open, time.Now()) })
	}
}

// checkMarks checks the marks, because a node refused a request with Guard at some time
// after since. It reports whether asking again is worthwhile.
func (s *Driver) checkMarks(ctx context.Context, since time.Time) bool {
	select {
	case s.markCheck.turn <- struct{}{}:
		defer func() { <-s.markCheck.turn }()
	case <-ctx.Done():
		return false
	}
	switch {
	case s.markCheck.last.IsZero():
	case !s.markCheck.last.Before(since):
		return s.markCheck.ok
	case time.Since(s.markCheck.last) < markCheckInterval:
		return false
	}
	s.markCheck.ok = s.ensureMarks(ctx)
	s.markCheck.last = time.Now()
	return s.markCheck.ok
}

// ensureMarks gives every node that can be reached a mark. Nodes without one have lost
// their data and are put into quarantine. If no node has a mark, all are new and serve at
// once.
func (s *Driver) ensureMarks(ctx context.Context) (fine bool) {
	for look := 1; ; look++ {
		m := s.allMarks(ctx)
		switch {
		case s.compare(m) != nil:
			return false
		case m.unmarked == 0:
			return true
		case m.marked() == 0 && m.unknown == 0:
			done, err := s.markNewNodes(ctx)
			if done || err != nil {
				return done
			}
			look-- // another process is setting it up, or has done so
		case look == maxLooks:
			s.mark(ctx, m.unmarked, s.quarantine(), "")
			return false
		}
		if !timing.Sleep(ctx, spread(lookPause)) {
			return false // another process will decide
		}
	}
}

// markNewNodes marks new nodes, and reports whether it did; an error means that no process
// can reserve a node, such as a replica. The marks that this process has read may be
// outdated when its own mark arrives: another process may have marked the nodes in the
// meantime and granted a lock, which a node may have lost since. So this process first
// reserves all nodes, in order, so that two processes do not block each other. A node
// accepts the mark only while it is reserved for this process. Any other process finds a
// node reserved or marked.
func (s *Driver) markNewNodes(ctx context.Context) (done bool, err error) {
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
	return s.allMarks(ctx).unmarked == 0, nil
}

// reserve reserves a node for as long as reserving and marking all nodes may take.
func (s *Driver) reserve(ctx context.Context, i int, by string) (bool, error) {
	life := time.Duration(len(s.nodes)+1) * s.timeout
	r := query(ctx, s, set(0).with(i), s.timeout, func(ctx context.Context, n *node) (bool, error) {
		return n.marker.Reserve(ctx, by, life)
	})
	defer r.finish(nil)
	a, _ := r.next()
	return a.value, a.err
}

// marks holds the marks of the guarded nodes.
type marks struct {
	names    map[int]string // of the nodes that carry one
	unmarked set
	unknown  int
}

func (m *marks) marked() int { return len(m.names) }

// allMarks reads the marks, and waits for all nodes that answer in time.
func (s *Driver) allMarks(ctx context.Context) marks {
	return s.readMarks(ctx, func(*round[marked], *marks) bool { return true })
}

// marked is a node's answer about its mark.
type marked struct {
	mark driver.Mark
	ok   bool
}

// readMarks reads the marks while more reports true.
func (s *Driver) readMarks(ctx context.Context, more func(*round[marked], *marks) bool) (m marks) {
	m.names = make(map[int]string)
	r := query(ctx, s, s.guarded(), s.timeout, func(ctx context.Context, n *node) (v marked, err error) {
		v.mark, v.ok, err = n.marker.Marked(ctx)
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

// mark sets the marks of some nodes. If by is not empty, a node takes the mark only while
// it is reserved under that name.
func (s *Driver) mark(ctx context.Context, nodes set, quarantine time.Duration, by string) {
	r := query(ctx, s, nodes, s.timeout, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.marker.Mark(ctx, driver.Mark{Name: s.markName(), Quarantine: quarantine}, by)
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
