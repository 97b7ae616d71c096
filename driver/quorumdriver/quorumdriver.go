package quorumdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Driver is a store made of several nodes. [New] returns one. It is safe for concurrent
// use. In addition to [driver.Driver] it implements [driver.Limited],
// [driver.Watcher], [driver.Glancer], [driver.Breaker] and [driver.Checker].
type Driver struct {
	nodes []*node
	need  int    // a majority of the nodes, whether they can be reached or not
	visit string // the last word of this driver's visits
	config

	work      sync.WaitGroup  // calls and background work under way
	open      context.Context // of background work; ends when Close begins
	end       context.CancelFunc
	markCheck markCheck
	members   members

	mu        sync.Mutex
	closed    bool
	leases    map[leaseKey]*lease
	sweepSize int // number of leases at which the next sweep runs
	subs      map[string]*subscription
	nsub      int
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Limited = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil)
	_ driver.Breaker = (*Driver)(nil)
)

// MaxNodes is the greatest number of nodes. Three, five or seven are usual.
const MaxNodes = 31

// New returns a driver made of nodes, and owns them: Close closes them. All processes
// that exclude each other must use the same nodes. New sends no request.
//
// The error matches [driver.ErrInvalid] if there are no nodes or more than [MaxNodes], if
// a node is nil or named twice, or if an option is out of its bounds. It matches
// [errors.ErrUnsupported] if a node has no fencing tokens, unless [WithoutFencing] is
// set. After an error the nodes still belong to the caller.
func New(nodes []driver.Driver, opts ...Option) (*Driver, error) {
	s := &Driver{
		config:    config{timeout: DefaultTimeout, fencing: true, guard: true, maxTTL: DefaultMaxTTL, maxSkew: DefaultMaxSkew},
		markCheck: markCheck{turn: make(chan struct{}, 1)}, leases: make(map[leaseKey]*lease), subs: make(map[string]*subscription),
	}
	s.open, s.end = context.WithCancel(context.Background())
	for _, set := range opts {
		set(&s.config)
	}
	if err := s.check(len(nodes)); err != nil {
		return nil, fmt.Errorf("quorumdriver: %w", err)
	}
	for i, d := range nodes {
		if err := s.add(i, d); err != nil {
			return nil, fmt.Errorf("quorumdriver: node %d: %w", i+1, err)
		}
	}
	s.need, s.visit = len(nodes)/2+1, rand.Text()[:10]
	return s, nil
}

func (s *Driver) add(i int, d driver.Driver) error {
	v := reflect.ValueOf(d)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("no driver: %w", driver.ErrInvalid)
	}
	for k, other := range s.nodes {
		if v.Comparable() && other.Driver == d {
			return fmt.Errorf("the same driver as node %d: %w", k+1, driver.ErrInvalid)
		}
	}
	if s.fencing {
		if err := driver.Supports(d, driver.Request{MinToken: 1}); err != nil {
			return fmt.Errorf("%w; WithoutFencing does without", err)
		}
	}
	n := &node{Driver: d, index: i, name: s.nodeName(i), gates: make(map[string]*gate)}
	if s.guard {
		n.marker, _ = driver.As[driver.Marker](d)
	}
	s.nodes = append(s.nodes, n)
	return nil
}

// Nodes yields the names and drivers of the nodes, to inspect each separately. A request
// to one node does not affect the rest.
func (s *Driver) Nodes() iter.Seq2[string, driver.Driver] {
	return func(yield func(string, driver.Driver) bool) {
		for _, n := range s.nodes {
			if !yield(n.name, n.Driver) {
				return
			}
		}
	}
}

// Supports implements [driver.Limited]. It returns [errors.ErrUnsupported] for features
// that a majority cannot keep: limits, and an order of waiters. A waiter whose request
// does not insist on the order is accepted, and polls.
func (s *Driver) Supports(req driver.Request) error {
	lacking := ""
	switch {
	case req.Limit > 0, req.Resize:
		lacking = "cannot keep a limit"
	case req.Policy == driver.WritersFirst, req.Policy == driver.ReadersFirst, req.Ordered:
		lacking = "cannot keep the order of waiters"
	case req.MinToken > 0 && !s.fencing:
		lacking = "has no fencing tokens here (WithoutFencing)"
	case req.Guard:
		lacking = "has no mark of its own"
	default:
		if err := s.tooLong(req.TTL); err != nil {
			return err
		}
	}
	if lacking != "" {
		return fmt.Errorf("a majority of stores %s: %w", lacking, errors.ErrUnsupported)
	}
	for _, n := range s.nodes {
		if err := driver.Supports(n.Driver, n.shape(req)); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// tooLong refuses leases that are longer than the guard covers.
func (s *Driver) tooLong(ttl time.Duration) error {
	if !s.guard || ttl <= s.maxTTL {
		return nil
	}
	return fmt.Errorf("a majority of stores keeps one that lost its data out for leases of up to %v, and %v is longer (WithMaxTTL, or max-ttl of a URL): %w", s.maxTTL, ttl, errors.ErrUnsupported)
}

// enter counts a call, for which Close waits. It refuses calls after Close.
func (s *Driver) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: not sent: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.work.Add(1)
	return nil
}

// background runs f in a goroutine, for which Close waits. It is called by calls and
// background functions under way.
func (s *Driver) background(f func()) { s.work.Go(f) }

// Close waits for calls and for releases in the background, for at most twice the
// timeout, and closes all nodes. Later calls fail with [driver.ErrClosed]. Close may be
// called again.
func (s *Driver) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.end() // ends checks of marks, which are several rounds of up to the timeout each
	within(s.work.Wait, 2*s.timeout)
	err := s.closeNodes()
	if !within(s.work.Wait, s.timeout) {
		err = oneline.Join(err, errors.New("quorumdriver: a node does not end its calls"))
	}
	return err
}

// closing bounds how much longer than a call the closing of a node may take: a node may
// wait for its own work, with its own limit.
const closing = 5 * time.Second

func (s *Driver) closeNodes() error {
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		all.Go(func() { errs[i] = n.named(n.Close()) })
	}
	if !within(all.Wait, s.timeout+closing) {
		return errors.New("quorumdriver: a node does not close")
	}
	return oneline.Join(errs...)
}

// within reports whether wait returns within d.
func within(wait func(), d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
