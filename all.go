package leasehold

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Multi is several locks that are taken together or not at all.
type Multi struct {
	parts []*request // by key
	err   error
}

// All returns the lock of several: any mixture of kinds of one client. They
// are taken in the order of their keys, whatever the order of the arguments, so
// that two callers never wait for each other. A key that is named twice is
// taken once, by its stronger use.
//
// The lease of All has a context that ends when any of them is lost, a token
// for each in [Lease.Parts], and one release for all.
func All(locks ...Locker) *Multi {
	m := &Multi{}
	if len(locks) == 0 {
		m.err = fmt.Errorf("leasehold: all: no locks: %w", ErrInvalid)
		return m
	}
	for _, l := range locks {
		p, err := partOf(l)
		if err != nil {
			m.err = oneline.Join(m.err, err)
			continue
		}
		m.parts = append(m.parts, p)
	}
	if m.err == nil {
		m.parts, m.err = unique(m.parts)
	}
	return m
}

// partOf is what a lock asks for.
func partOf(l Locker) (*request, error) {
	switch l := l.(type) {
	case *Mutex:
		return &l.request, l.err
	case *RWMutex:
		return &l.write, l.err
	case *reader:
		return &l.read, l.err
	case *Semaphore:
		return &l.request, l.err
	}
	return nil, fmt.Errorf("leasehold: all: %T is not a lock of this package: %w", l, ErrInvalid)
}

// unique sorts parts by key and keeps one of each, the exclusive use first.
func unique(parts []*request) ([]*request, error) {
	// Of one key the exclusive use comes first, and so is the one that is kept.
	slices.SortStableFunc(parts, func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.mode, b.mode))
	})
	for i, p := range parts[1:] {
		last := parts[i]
		if p.c != last.c {
			return nil, lockError(p.key, fmt.Errorf("all: locks of different clients: %w", ErrInvalid))
		}
		if p.key == last.key && p.mode == last.mode && p.limit != last.limit {
			return nil, lockError(p.key, fmt.Errorf("all: limits %d and %d of one key: %w", last.limit, p.limit, ErrMismatch))
		}
	}
	return slices.CompactFunc(parts, func(a, b *request) bool { return a.key == b.key }), nil
}

// Lock waits until all are free, one after the other; see [Mutex.Lock]. Those
// already taken are renewed while it waits and given back if it fails. WithMaxWait
// of a lock bounds the time from the call until that lock is taken, whatever was
// waited for before it.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, true) }

// TryLock asks once for each and does not wait.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) { return m.take(ctx, false) }

// take chains the leases: each is taken under the context of the one before, so
// that the last one's context ends with any of them.
func (m *Multi) take(ctx context.Context, wait bool) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	began := m.parts[0].c.now()
	var taken []*Lease
	var held []*grip
	for _, p := range m.parts {
		l, err := p.acquireSince(ctx, wait, began)
		if err != nil {
			return nil, oneline.Join(err, releaseAll(held))
		}
		taken, held = append(taken, l), append(held, l.grip)
		ctx = l.Context()
	}
	return join(taken, held), nil
}

// join makes one lease of leases that are chained by their contexts.
func join(taken []*Lease, held []*grip) *Lease {
	last := taken[len(taken)-1]
	if len(taken) == 1 {
		return last
	}
	g := &grip{hold: last.hold, inner: last.inner, cancel: last.cancel, parts: held}
	whole := &Lease{grip: g, whole: taken}
	whole.ctx = leaseContext{g.inner, whole}
	// The loss of one is the loss of all: the others are given back at once.
	g.hold.follow(g, context.AfterFunc(g.inner, func() { _ = g.giveBack() }))
	return whole
}

// each does f to all parts and joins what goes wrong.
func (l *Lease) each(f func(*Lease) error) error {
	var errs []error
	for _, p := range l.whole {
		errs = append(errs, f(p))
	}
	return oneline.Join(errs...)
}

// releaseAll releases the last first, as nested locks would be.
func releaseAll(leases []*grip) error {
	var errs []error
	for _, g := range slices.Backward(leases) {
		errs = append(errs, g.giveBack())
	}
	return oneline.Join(errs...)
}
