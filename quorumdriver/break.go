package quorumdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/driver"
)

// Break implements [driver.Breaker]. It looks first, and sends nothing to nodes that
// do not have the lease: what arrives there late would break a later lease of that id.
// A majority that has broken the lease lets nobody in under its id for a minute, which
// is longer than a request is on its way. The lease is broken at all nodes that answer;
// the answer is what a majority says.
func (s *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Reply{}, err
	}
	defer s.work.Done()
	there, err := s.where(ctx, key, id)
	if err != nil || there == 0 {
		return driver.Reply{}, err // Gone
	}
	r := ask(ctx, s, nil, s.everyone(), s.timeout, func(ctx context.Context, i int) (driver.Reply, error) {
		if !there.has(i) {
			return driver.Reply{}, nil
		}
		return s.breakAt(ctx, i, key, id, reason)
	})
	defer r.finish(nil)
	reply, err := s.parted(r)
	for r.waits() { // so that nobody sees the lease at a node that answers
		if _, ok := r.next(); !ok {
			break
		}
	}
	return reply, err
}

func (s *Driver) breakAt(ctx context.Context, i int, key, id, reason string) (reply driver.Reply, err error) {
	b, ok := driver.As[driver.Breaker](s.nodes[i].Driver)
	if !ok {
		return reply, fmt.Errorf("in its store no lease can be broken: %w", errors.ErrUnsupported)
	}
	err = s.nodes[i].call(ctx, func(ctx context.Context) (err error) {
		reply, err = b.Break(ctx, key, id, reason)
		return err
	})
	return reply, err
}

// where is which nodes have a lease or ticket, or may have it: those that have not
// answered count if a majority may have it with them. The error is that a majority has
// not answered.
func (s *Driver) where(ctx context.Context, key, id string) (there set, err error) {
	r := s.lookInto(ctx, key, inspect)
	defer r.finish(nil)
	unknown := s.everyone()
	var failed []answer[driver.Reply]
	for len(s.nodes)-unknown.size() < s.need || r.waits() {
		a, ok := r.next()
		if !ok {
			break
		}
		if a.err != nil {
			failed = append(failed, answer[driver.Reply]{node: a.node, err: a.err})
			continue
		}
		unknown = unknown.without(a.node)
		if has(a.value, id) {
			there = there.with(a.node)
		}
	}
	if len(s.nodes)-unknown.size() < s.need {
		return 0, s.unseen(ctx, failed)
	}
	if (there | unknown).size() >= s.need {
		there |= unknown
	}
	return there, nil
}

// has reports whether an id is in a picture.
func has(snap driver.Snapshot, id string) bool {
	return slices.ContainsFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id }) ||
		slices.ContainsFunc(snap.Waiters, func(w driver.Waiter) bool { return w.ID == id })
}
