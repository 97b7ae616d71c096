package leasehold

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Part is a lock that [All] accepts: a [*Mutex], a [*RWMutex], which stands for its
// write side, a [*RLocker], a [*Semaphore], which stands for one place, [*Places], or
// the [*Multi] of another All.
type Part interface {
	requests() ([]*request, error)
}

func (r *request) requests() ([]*request, error) { return []*request{r}, r.err }
func (m *RWMutex) requests() ([]*request, error) { return m.write.requests() }
func (r *RLocker) requests() ([]*request, error) { return r.read.requests() }
func (m *Multi) requests() ([]*request, error)   { return m.parts, m.err }

// Multi is several locks that are taken together or not at all. It is made by [All],
// holds no state of its own, and is safe for concurrent use.
type Multi struct {
	parts []*request // by key
	err   error
}

// All returns the lock of several: any mixture of kinds of one client. They are taken
// in the order of their keys and not of the arguments, so that two callers
// never wait for each other. A key that is named twice is taken once, by its stronger
// use: to write before to read, and more places before fewer.
//
// The first use of the result reports wrong arguments: with ErrInvalid if there is no lock, if
// a lock is nil, or if the locks are of different clients, and with ErrMismatch if they state
// different limits of one semaphore.
func All(locks ...Part) *Multi {
	m := &Multi{}
	if len(locks) == 0 {
		m.err = fmt.Errorf("leasehold: all: no locks: %w", ErrInvalid)
		return m
	}
	for _, l := range locks {
		if v := reflect.ValueOf(l); !v.IsValid() || v.IsNil() {
			m.err = oneline.Join(m.err, fmt.Errorf("leasehold: all: nil lock: %w", ErrInvalid))
			continue
		}
		parts, err := l.requests()
		m.parts, m.err = append(m.parts, parts...), oneline.Join(m.err, err)
	}
	if m.err == nil {
		m.parts, m.err = unique(m.parts)
	}
	return m
}

// unique sorts parts by key and keeps the strongest use of each.
func unique(parts []*request) ([]*request, error) {
	slices.SortStableFunc(parts, func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.mode, b.mode), cmp.Compare(b.weight, a.weight))
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

// Lock takes all locks, one after the other; see [Mutex.Lock]. The locks that are already
// taken are renewed while Lock waits, and given back if it fails; the error matches ErrUnknown
// if the store does not confirm that. WithMaxWait of a lock bounds the time from the call until
// that lock is taken, including the wait for the locks before it.
func (m *Multi) Lock(ctx context.Context) (*MultiLease, error) { return m.take(ctx, true) }

// TryLock asks once for each, in the order of their keys, and does not wait; see
// [Mutex.TryLock]. The locks that are already taken are given back if it fails.
func (m *Multi) TryLock(ctx context.Context) (*MultiLease, error) { return m.take(ctx, false) }

// take takes each lease under the context of its predecessor, so that the context of the last
// lease ends with any of them.
func (m *Multi) take(ctx context.Context, wait bool) (*MultiLease, error) {
	if m.err != nil {
		return nil, m.err
	}
	began := m.parts[0].c.now()
	whole := &MultiLease{chain: new(chain)}
	for _, p := range m.parts {
		l, err := p.acquireSince(ctx, wait, began)
		if err != nil {
			left := whole.chain.undo()
			if left != nil {
				err = timing.Uncertain(err) // err concerns this lock; the store may still have its predecessors
			}
			return nil, oneline.Join(err, left)
		}
		whole.parts, whole.chain.entries = append(whole.parts, l), append(whole.chain.entries, l.entry)
		ctx = l.Context()
	}
	whole.ctx = multiContext{ctx, whole}
	return whole, nil
}

// MultiLease is the right to work that the locks of [All] grant together. Its context ends
// when one of the leases is lost. The other locks stay closed until Release.
// There is no token of the whole: each lock has one. Its methods are safe for concurrent use.
type MultiLease struct {
	chain *chain
	parts []*Lease // in the order they were taken
	ctx   multiContext
}

// Context is derived from the context that Lock was given and ends when one of the
// leases does; see [Lease.Context].
func (l *MultiLease) Context() context.Context { return &l.ctx }

// Parts returns the leases of the single locks, in the order of their keys: for their
// tokens and ids. Release of the whole releases them.
func (l *MultiLease) Parts() []*Lease { return slices.Clone(l.parts) }

// Tokens returns the fencing token of each lock by its key; see [Lease.Token].
func (l *MultiLease) Tokens() map[string]int64 {
	tokens := make(map[string]int64, len(l.parts))
	for _, p := range l.parts {
		tokens[p.Key()] = p.Token()
	}
	return tokens
}

// State returns whether the whole is valid: Unconfirmed if one of the leases is. When the
// context of the whole has ended, State returns how the first lease ended.
func (l *MultiLease) State() State {
	live := l.ctx.Err() == nil
	states := make([]State, len(l.parts))
	for i, p := range l.parts {
		states[i] = p.State()
	}
	if live {
		return slices.Max(states)
	}
	for _, s := range [...]State{Lost, MaxHoldReached, ClientClosed} {
		if slices.Contains(states, s) {
			return s
		}
	}
	if states[0] != ContextEnded && slices.Contains(states, Released) {
		return Released
	}
	return ContextEnded
}

// Deadline returns the local time at which the first of the leases is over unless it
// is renewed before.
func (l *MultiLease) Deadline() time.Time {
	deadline := l.parts[0].hold.Deadline()
	for _, p := range l.parts[1:] {
		if d := p.hold.Deadline(); d.Before(deadline) {
			deadline = d
		}
	}
	return clock.Local(deadline)
}

// Remaining returns the time until the deadline, 0 once the lease has ended.
func (l *MultiLease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return max(time.Until(l.Deadline()), 0)
}

// Extend renews all leases now, one after the other, and makes them last at least
// ttl from this moment; see [Lease.Extend]. It goes on after a failure, and joins the errors.
func (l *MultiLease) Extend(ctx context.Context, ttl time.Duration) error {
	var errs []error
	for _, p := range l.parts {
		errs = append(errs, p.Extend(ctx, ttl))
	}
	return oneline.Join(errs...)
}

// Release gives all leases back, within the longest of their release timeouts; see
// [Lease.Release]. It joins the errors. It may be called any number of times: all calls return
// the result of the first.
func (l *MultiLease) Release() error { return l.chain.giveBack() }

// chain is the state of a MultiLease. It does not refer to the Leases, so that the garbage
// collector can report dropped Leases; see forgotten.
type chain struct {
	entries []*entry // each taken under the context of its predecessor

	mu  sync.Mutex // guards end
	end outcome
}

// giveBack releases all leases, once, and returns the errors of their releases.
func (c *chain) giveBack() error {
	return c.end.once(&c.mu, func() error { return oneline.Join(c.giveBackAll()...) })
}

// undo releases the leases that a failed call had taken.
func (c *chain) undo() error {
	errs := c.giveBackAll()
	for i := range errs {
		errs[i] = ofCall(errs[i])
	}
	return oneline.Join(errs...)
}

// giveBackAll ends the leases one after the other, the last first, as nested locks would
// end. The store is asked to release all at the same time, so that one that does not answer
// costs one release timeout.
func (c *chain) giveBackAll() []error {
	errs := make([]error, len(c.entries))
	var released sync.WaitGroup
	for i, e := range slices.Backward(c.entries) {
		ended := make(chan struct{})
		left := sync.OnceFunc(func() { close(ended) })
		released.Go(func() {
			errs[i] = e.endThenRelease(left)
			left()
		})
		<-ended
	}
	released.Wait()
	return errs
}

// live compares the clock for all leases. When it returns, the context of the whole has ended
// if the context of a lease has.
func (c *chain) live() {
	for _, e := range c.entries {
		e.live()
	}
}

// multiContext ends with a MultiLease: Err compares the clock.
type multiContext struct {
	context.Context // of the last lease
	lease           *MultiLease
}

func (c *multiContext) Err() error {
	c.lease.chain.live()
	return c.Context.Err()
}

func (c *multiContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c.lease
	}
	return c.Context.Value(key)
}

// MultiFromContext returns the innermost lease among the contexts that ctx is derived from, if
// [All] made it; see [FromContext].
func MultiFromContext(ctx context.Context) (*MultiLease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*MultiLease)
	return l, ok
}
