package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/driver"
)

// Break implements [driver.Breaker]. It first finds the nodes that have the lease, and
// sends the request only to them: elsewhere a late request would break a later lease with
// that id. A majority that has broken the lease rejects its id for a minute, which is
// longer than a request can be delayed. The lease is broken at all nodes that answer; the
// answer is the majority's. The error matches [driver.ErrNoQuorum] if a majority did not
// answer.
func (s *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	there, err := s.findLease(ctx, key, id)
	if err != nil || there == 0 {
		return driver.Reply{}, err // Gone
	}
	r := ask(ctx, s, s.allNodes(), s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		if !there.has(i) {
			return driver.Reply{}, nil
		}
		return s.breakAt(ctx, i, key, id, reason)
	})
	defer r.finish(nil)
	reply, err := s.countReleases(r)
	for r.worthWaiting() { // so that no node that answers shows the lease
		if _, ok := r.next(); !ok {
			break
		}
	}
	return reply, err
}

func (s *Driver) breakAt(ctx context.Context, i int, key, id, reason string) (driver.Reply, error) {
	b, ok := driver.As[driver.Breaker](s.nodes[i].Driver)
	if !ok {
		return driver.Reply{}, fmt.Errorf("in its store no lease can be broken: %w", errors.ErrUnsupported)
	}
	return call(ctx, s.nodes[i], func(ctx context.Context) (driver.Reply, error) { return b.Break(ctx, key, id, reason) })
}

// findLease returns the nodes that have or may have a lease or ticket: nodes that have
// not answered count if they could complete a majority. The error means that a majority
// did not answer.
func (s *Driver) findLease(ctx context.Context, key, id string) (there set, err error) {
	seen, err := s.look(ctx, key, inspect)
	if err != nil {
		return 0, err
	}
	unknown := s.allNodes()
	for _, a := range seen {
		unknown = unknown.without(a.node)
		if slices.ContainsFunc(a.value.Holders, func(h driver.Holder) bool { return h.ID == id }) ||
			slices.ContainsFunc(a.value.Waiters, func(w driver.Waiter) bool { return w.ID == id }) {
			there = there.with(a.node)
		}
	}
	if (there | unknown).size() >= s.need {
		there |= unknown
	}
	return there, nil
}
