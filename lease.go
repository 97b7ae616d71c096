package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
)

// State is what a holder can know about its lease.
type State uint8

const (
	// Held: the lease is valid and the last renewal succeeded.
	Held State = iota
	// Unconfirmed: the lease is valid, but the last renewal failed. It heals
	// when a renewal succeeds before the deadline.
	Unconfirmed
	// Lost: the lease ended although it was not released.
	Lost
	// Released: the lease was given back.
	Released
)

func (s State) String() string {
	return [...]string{"held", "unconfirmed", "lost", "released"}[min(s, Released)]
}

// Lease is the right to work that a lock grants for a time. Its methods are
// safe for concurrent use.
//
// A lease is over at the latest when its deadline passes on the local clock,
// even if the store hangs or this process was stopped: every method and the
// context's Err compare the clock themselves. Once lost, a lease never comes
// back. It cannot stop a holder that does not look: only a resource that checks
// [Lease.Token] can refuse a stale write.
type Lease struct {
	hold   *hold
	ctx    leaseContext
	cancel context.CancelCauseFunc
	detach func() bool // from the parent context; guarded by hold.mu

	parts []*Lease // of a lease of several locks, in the order they were taken

	// The end, guarded by hold.mu.
	ending bool          // somebody gives it back, or has
	ended  chan struct{} // closed when that is done; made by whoever waits for it first
	done   bool
	err    error // of Release
}

// newLease makes a lease of h whose context derives from parent.
func newLease(parent context.Context, h *hold) *Lease {
	l := &Lease{hold: h}
	inner, cancel := context.WithCancelCause(parent)
	l.ctx, l.cancel = leaseContext{inner, l}, cancel
	h.add(l)
	if parent.Done() != nil {
		h.follow(l, context.AfterFunc(parent, func() { l.parentEnded(context.Cause(parent)) }))
	}
	return l
}

// parentEnded gives the lease back when the parent context ended first.
func (l *Lease) parentEnded(cause error) {
	if !l.hold.live() {
		return
	}
	_ = l.endOnce(func() error { return l.release(cause) })
}

// Context is derived from the context that Lock was given and ends when the
// lease ends. Its [context.Cause] then is, or wraps, ErrReleased, ErrLost,
// ErrMaxHold, ErrForced, ErrClosed, or the parent's own cause.
//
// A Lock of the same key by the same client under this context re-enters: it
// is granted at once, shares the token, and the lock is freed by the last
// release.
func (l *Lease) Context() context.Context { return &l.ctx }

// Key returns the key of the lock.
func (l *Lease) Key() string { return l.hold.key }

// Owner returns who holds the lease: what WithOwner or WithName said, or host
// and process id.
func (l *Lease) Owner() string { return l.hold.cfg.owner }

// ID returns the lease's id in the store.
func (l *Lease) ID() string { return l.hold.id }

// Token returns the fencing token: greater than every token given before for
// the key, equal at every depth of re-entry, below 2^53. It is 0 if the store
// mints none. It stays readable after the lease has ended, for a resource to
// refuse it. A lease of [All] has one for each of its [Lease.Parts], and itself
// none.
func (l *Lease) Token() int64 {
	if l.live(); l.parts != nil {
		return 0
	}
	return l.hold.token
}

// Parts returns the leases of the single locks that a lease of [All] is made
// of, in the order of their keys; of any other lease, the lease itself.
func (l *Lease) Parts() []*Lease {
	if l.parts == nil {
		return []*Lease{l}
	}
	return slices.Clone(l.parts)
}

// live compares the clock, and ends what has run out. When it returns false
// the context has ended, also if somebody else is about to end it.
func (l *Lease) live() bool {
	if l.parts == nil {
		cause := l.hold.over()
		if cause != nil {
			l.cancel(cause)
		}
		return cause == nil
	}
	live := true
	for _, p := range l.parts {
		live = p.live() && live
	}
	return live
}

// State tells whether the lease is valid.
func (l *Lease) State() State {
	if l.ctx.Err() == nil {
		state := l.hold.state()
		for _, p := range l.parts {
			state = max(state, p.hold.state())
		}
		return state
	}
	if cause := context.Cause(l.ctx.Context); errors.Is(cause, ErrLost) {
		return Lost
	}
	return Released
}

// Deadline returns the local time at which the lease is over unless it is
// renewed before.
func (l *Lease) Deadline() time.Time {
	deadline := l.hold.until()
	for _, p := range l.parts {
		if d := p.hold.until(); d.Before(deadline) {
			deadline = d
		}
	}
	return clock.Local(deadline)
}

// Remaining returns the time until the deadline, 0 once the lease has ended.
func (l *Lease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	return max(time.Until(l.Deadline()), 0)
}

// Extend renews the lease now and makes it last at least ttl from this moment.
// From then on it is renewed for ttl, if that is longer than before: a lease is
// never shortened. It returns when the store has confirmed or ctx is done; then
// the error matches ErrUnknown. An error that matches ErrNotHeld means that the
// lease has ended. ttl is bounded like that of WithTTL; one that the store cannot
// serve changes nothing and matches ErrUnsupported.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return lockError(l.Key(), fmt.Errorf("TTL %v is not between %v and %v: %w", ttl, MinTTL, MaxTTL, ErrInvalid))
	}
	if l.parts != nil {
		return l.each(func(p *Lease) error { return p.Extend(ctx, ttl) })
	}
	if err := driver.Supports(l.hold.c.drv, driver.Request{TTL: ttl}); err != nil {
		return lockError(l.Key(), err)
	}
	done, err := l.hold.extend(ttl)
	if err != nil {
		return lockError(l.Key(), err)
	}
	select {
	case err := <-done:
		if err != nil {
			return lockError(l.Key(), err)
		}
		return nil
	case <-ctx.Done():
		return lockError(l.Key(), fmt.Errorf("extend: %w: %w", ErrUnknown, causeOf(ctx)))
	}
}

// Release gives the lease back and hands the lock on. It needs no context, is
// bounded by WithReleaseTimeout, waits for the store's answer, and may be
// called any number of times: all calls return the result of the first.
//
// The error matches ErrLost if the lease had ended before, so that the work was
// not protected to its end (together with ErrMaxHold, ErrForced or ErrClosed if
// that is why), and ErrUnknown if the store did not confirm the
// release in time; the lease then ends by its TTL at the latest.
func (l *Lease) Release() error {
	return l.endOnce(func() error { return l.release(ErrReleased) })
}

// endOnce has the lease ended by the first call, and returns the outcome of that
// to all. Others wait on a channel, not on a lock as those of a [sync.Once] do: in
// a synctest bubble time passes meanwhile, and what they wait for has an end.
func (l *Lease) endOnce(end func() error) error {
	mu := &l.hold.mu
	mu.Lock()
	defer mu.Unlock()
	if !l.ending {
		l.ending = true
		mu.Unlock()
		err := end()
		mu.Lock()
		l.done, l.err = true, err
		if l.ended != nil {
			close(l.ended)
		}
		return err
	}
	if !l.done {
		if l.ended == nil {
			l.ended = make(chan struct{})
		}
		ended := l.ended
		mu.Unlock()
		<-ended
		mu.Lock()
	}
	return l.err
}

// Detach ends the lease here and leaves it in the store, to be renewed and
// released by its id from elsewhere: by the next process of a script, for
// instance. The lease is renewed once by the way, so that whoever takes it over
// has its TTL from now on, and ends after that unless it is renewed. The context
// ends with ErrReleased, and Release returns nil and does nothing.
//
// The error matches ErrMismatch if the lease is one of [All], or is shared by
// re-entry; ErrNotHeld if it has ended; and ErrUnknown if ctx ended before the
// store answered; then the lease is as it was before.
func (l *Lease) Detach(ctx context.Context) error {
	if l.parts != nil {
		return lockError(l.Key(), fmt.Errorf("detach of several locks at once: %w", ErrMismatch))
	}
	l.hold.mu.Lock()
	ttl, leases := l.hold.ttl, len(l.hold.leases)
	l.hold.mu.Unlock()
	if leases > 1 {
		return lockError(l.Key(), fmt.Errorf("detach: held %d times: %w", leases, ErrMismatch))
	}
	if err := l.Extend(ctx, ttl); err != nil {
		return err
	}
	err := fmt.Errorf("%w: %w", ErrNotHeld, ErrReleased) // by a Release in between
	_ = l.endOnce(func() error {
		l.hold.unfollow(l)
		err, _ = l.hold.remove(l, ErrReleased)
		l.cancel(ErrReleased)
		return err
	})
	if err != nil {
		return lockError(l.Key(), fmt.Errorf("detach: %w", err))
	}
	return nil
}

func (l *Lease) release(cause error) error {
	l.hold.c.enter()
	defer l.hold.c.leave()
	l.hold.unfollow(l)
	if l.parts != nil {
		return releaseAll(l.parts)
	}
	lost, back := l.hold.remove(l, cause)
	l.cancel(cause)
	switch {
	case back:
		return l.hold.giveBack(lost, l.hold.cfg.releaseTimeout)
	case lost != nil:
		return lockError(l.Key(), lost)
	}
	return nil
}

// leaseContext ends with the lease, also when nobody had the time to end it:
// Err compares the clock.
type leaseContext struct {
	context.Context
	lease *Lease
}

// Err is checked against the clock, so that a process that was stopped sees the
// loss at its first look, before any timer has run.
func (c *leaseContext) Err() error {
	c.lease.live()
	return c.Context.Err()
}

// leaseKey asks a context for the innermost lease of all.
type leaseKey struct{}

// FromContext returns the innermost lease whose context ctx is derived from:
// for its token, in work that was given a context only.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c.lease
	}
	// A request asks for the innermost lease of its own lock.
	if r, ok := key.(*request); ok && r.c == c.lease.hold.c && r.key == c.lease.hold.key {
		return c.lease
	}
	return c.Context.Value(key)
}
