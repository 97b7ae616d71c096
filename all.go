package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Multi is several locks that are taken together or not at all.
type Multi struct {
	parts []part
	err   error
}

// part is one lock of a Multi: what it asks for, by its key.
type part struct {
	*request
	try, lock func(context.Context) (*Lease, error)
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
			m.err = errors.Join(m.err, err)
			continue
		}
		m.parts = append(m.parts, p)
	}
	if m.err == nil {
		m.parts, m.err = unique(m.parts)
	}
	return m
}

func partOf(l Locker) (part, error) {
	switch l := l.(type) {
	case *Mutex:
		return part{&l.request, l.TryLock, l.Lock}, l.err
	case *RWMutex:
		return part{&l.write, l.TryLock, l.Lock}, l.err
	case *reader:
		m := (*RWMutex)(l)
		return part{&l.read, m.TryRLock, m.RLock}, l.err
	case *Semaphore:
		return part{&l.request, l.TryLock, l.Lock}, l.err
	}
	return part{}, fmt.Errorf("leasehold: all: %T is not a lock of this package: %w", l, ErrInvalid)
}

// unique sorts parts by key and keeps one of each, the exclusive use first.
func unique(parts []part) ([]part, error) {
	// Of one key the exclusive use comes first, and so is the one that is kept.
	slices.SortStableFunc(parts, func(a, b part) int {
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
	return slices.CompactFunc(parts, func(a, b part) bool { return a.key == b.key }), nil
}

// Lock waits until all are free, one after the other; see [Mutex.Lock]. Those
// already taken are renewed while it waits and given back if it fails.
func (m *Multi) Lock(ctx context.Context) (*Lease, error) {
	return m.take(ctx, func(p part) func(context.Context) (*Lease, error) { return p.lock })
}

// TryLock asks once for each and does not wait.
func (m *Multi) TryLock(ctx context.Context) (*Lease, error) {
	return m.take(ctx, func(p part) func(context.Context) (*Lease, error) { return p.try })
}

// take chains the leases: each is taken under the context of the one before, so
// that the last one's context ends with any of them.
func (m *Multi) take(ctx context.Context, how func(part) func(context.Context) (*Lease, error)) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	var taken []*Lease
	for _, p := range m.parts {
		l, err := how(p)(ctx)
		if err != nil {
			return nil, errors.Join(err, releaseAll(taken))
		}
		taken = append(taken, l)
		ctx = l.Context()
	}
	return join(taken), nil
}

// join makes one lease of leases that are chained by their contexts.
func join(taken []*Lease) *Lease {
	last := taken[len(taken)-1]
	if len(taken) == 1 {
		return last
	}
	whole := &Lease{hold: last.hold, parts: taken, cancel: last.cancel}
	whole.ctx = leaseContext{last.ctx.Context, whole}
	// The loss of one is the loss of all: the others are given back at once.
	whole.hold.follow(whole, context.AfterFunc(last.ctx.Context, func() { _ = whole.Release() }))
	return whole
}

// each does f to all parts and joins what goes wrong.
func (l *Lease) each(f func(*Lease) error) error {
	var errs []error
	for _, p := range l.parts {
		errs = append(errs, f(p))
	}
	return errors.Join(errs...)
}

// releaseAll releases the last first, as nested locks would be.
func releaseAll(leases []*Lease) error {
	var errs []error
	for _, l := range slices.Backward(leases) {
		errs = append(errs, l.Release())
	}
	return errors.Join(errs...)
}
