package quorumdriver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// hintDelay is the longest time for which a hint of a single node waits for a majority to
// give the same; the shortest is half of it, so that waiters that different nodes wake do
// not ask in step.
const hintDelay = 20 * time.Millisecond

// Watch implements [driver.Watcher]. A hint by a majority of the nodes is passed on at
// once, a hint by fewer nodes after up to 20 ms. Hints only mean that asking is useful. A
// break is passed on only if a majority reports it. The error matches
// [errors.ErrUnsupported] if no node gives hints, and [driver.ErrClosed] after Close.
func (s *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	s.mu.Lock()
	closed := s.closed
	s.nsub++
	sub := &subscription{
		s: s, address: fmt.Sprintf("quorum-%d", s.nsub), f: f,
		nodes: make([]driver.Subscription, len(s.nodes)), pending: make(map[hintKey]*pendingHint),
	}
	s.mu.Unlock()
	if closed {
		return nil, driver.ErrClosed
	}
	err := fmt.Errorf("no node gives hints: %w", errors.ErrUnsupported)
	some := false
	for i, n := range s.nodes {
		w, ok := driver.As[driver.Watcher](n.Driver)
		if !ok {
			continue
		}
		if sub.nodes[i], err = w.Watch(func(h driver.Hint) { sub.receive(i, h) }); err != nil {
			err = n.named(err)
			continue
		}
		some = true
	}
	if !some {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[sub.address] = sub
	return sub, nil
}

// subscription collects the hints of the nodes.
type subscription struct {
	s       *Driver
	address string
	nodes   []driver.Subscription // nil for nodes without a subscription

	mu      sync.Mutex
	f       func(driver.Hint)
	pending map[hintKey]*pendingHint
	closed  bool
}

// hintKey identifies the content of a hint.
type hintKey struct {
	kind    driver.HintKind
	key, id string
}

// pendingHint is a hint that some nodes have given.
type pendingHint struct {
	hint  driver.Hint
	nodes set
	timer *time.Timer
}

// Address implements [driver.Subscription].
func (sub *subscription) Address() string {
	for i := range sub.nodes {
		if sub.at(i) != "" {
			return sub.address
		}
	}
	return ""
}

// at returns the address at a node.
func (sub *subscription) at(i int) string {
	if sub.nodes[i] == nil {
		return ""
	}
	return sub.nodes[i].Address()
}

// receive takes a hint of a node. It drops hints to ask later, since waiters ask from
// time to time anyway.
func (sub *subscription) receive(i int, h driver.Hint) {
	if h.Kind == driver.HintGranted {
		h = driver.Hint{Kind: driver.HintAsk, ID: h.ID}
	}
	if h.Kind == driver.HintAsk && h.RetryAfter > 0 {
		return
	}
	k := hintKey{h.Kind, h.Key, h.ID}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.closed {
		return
	}
	m := sub.pending[k]
	if m == nil {
		m = &pendingHint{hint: h}
		wait := spread(hintDelay)
		if h.Kind == driver.HintBroken {
			wait = sub.s.timeout // the hint is dropped then, and nodes may be far apart
		}
		m.timer = time.AfterFunc(wait, func() { sub.expire(k, m) })
		sub.pending[k] = m
	}
	m.nodes = m.nodes.with(i)
	if m.nodes.size() >= sub.s.need {
		m.timer.Stop()
		delete(sub.pending, k)
		sub.f(m.hint)
	}
}

// expire passes on a hint that no majority has given in time, or drops it.
func (sub *subscription) expire(k hintKey, m *pendingHint) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.closed || sub.pending[k] != m {
		return
	}
	delete(sub.pending, k)
	if k.kind != driver.HintBroken {
		sub.f(m.hint)
	}
}

// Close implements [driver.Subscription].
func (sub *subscription) Close() error {
	sub.s.mu.Lock()
	delete(sub.s.subs, sub.address)
	sub.s.mu.Unlock()
	var errs []error
	for i, node := range sub.nodes {
		if node != nil {
			errs = append(errs, sub.s.nodes[i].named(node.Close()))
		}
	}
	sub.mu.Lock() // waits for a call of f under way
	defer sub.mu.Unlock()
	sub.closed = true
	for _, m := range sub.pending {
		m.timer.Stop()
	}
	sub.pending = nil
	return oneline.Join(errs...)
}

// address returns the address at node i for hints to address. A waiter gets hints if there
// is any subscription, since they only mean that asking is useful.
func (s *Driver) address(i int, address string, waits bool) string {
	if address == "" && !waits {
		return ""
	}
	s.mu.Lock()
	sub := s.subs[address]
	if sub == nil && waits {
		for _, sub = range s.subs {
			break
		}
	}
	s.mu.Unlock()
	switch {
	case sub != nil:
		return sub.at(i)
	case waits:
		return ""
	}
	return address // the address belongs to no subscription here, so the nodes have none for it, either
}
