package quorumdriver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// settle is how long hints of single nodes are kept back for a majority to give
// the same, at the latest; half of it at the soonest, so that those whom different
// nodes wake do not ask in step.
const settle = 20 * time.Millisecond

// Watch implements [driver.Watcher]. A hint that is given by a majority of the
// nodes is passed on at once, and one by fewer a moment later: it says that asking
// is useful, and never more. That a lease was broken is passed on only if a
// majority says so. The error matches [errors.ErrUnsupported] if no node gives
// hints.
func (s *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	s.mu.Lock()
	closed := s.closed
	s.nsub++
	sub := &subscription{
		s: s, address: fmt.Sprintf("quorum-%d", s.nsub), f: f,
		nodes: make([]driver.Subscription, len(s.nodes)), heard: make(map[heardKey]*heard),
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
		if sub.nodes[i], err = w.Watch(func(h driver.Hint) { sub.hear(i, h) }); err != nil {
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
	nodes   []driver.Subscription // nil where there is none

	mu     sync.Mutex
	f      func(driver.Hint)
	heard  map[heardKey]*heard
	closed bool
}

// heardKey is what a hint is about.
type heardKey struct {
	kind driver.HintKind
	id   string
}

// heard is a hint that some nodes have given.
type heard struct {
	hint  driver.Hint
	nodes map[int]bool
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

// at is the address at a node.
func (sub *subscription) at(i int) string {
	if sub.nodes[i] == nil {
		return ""
	}
	return sub.nodes[i].Address()
}

// hear takes a hint of a node. To ask later is of no use to know, since everybody
// asks from time to time.
func (sub *subscription) hear(i int, h driver.Hint) {
	if h.Kind == driver.HintGranted {
		h = driver.Hint{Kind: driver.HintAsk, ID: h.ID}
	}
	if h.Kind == driver.HintAsk && h.RetryAfter > 0 {
		return
	}
	k := heardKey{h.Kind, h.ID}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.closed {
		return
	}
	m := sub.heard[k]
	if m == nil {
		m = &heard{hint: h, nodes: make(map[int]bool)}
		wait := spread(settle)
		if h.Kind == driver.HintBroken {
			wait = sub.s.timeout // it is dropped then, and the nodes may be far from each other
		}
		m.timer = time.AfterFunc(wait, func() { sub.late(k, m) })
		sub.heard[k] = m
	}
	m.nodes[i] = true
	if len(m.nodes) >= sub.s.need {
		m.timer.Stop()
		delete(sub.heard, k)
		sub.f(m.hint)
	}
}

// late passes on what no majority has said in time, or drops it.
func (sub *subscription) late(k heardKey, m *heard) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.closed || sub.heard[k] != m {
		return
	}
	delete(sub.heard, k)
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
	for _, m := range sub.heard {
		m.timer.Stop()
	}
	sub.heard = nil
	return oneline.Join(errs...)
}

// address is where node i delivers the hints that are to come to address. Who waits
// gets them in any case, if anybody listens here: they only say when to ask.
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
	return address // nobody's here, and so nobody's there
}
