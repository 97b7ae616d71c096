package leasehold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/session"
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
//
// A lease is renewed for as long as the process lives, also if nothing in the
// program refers to it any more; see [WithLogger].
type Lease struct {
	*grip
	ctx leaseContext

	whole []*Lease // of a lease of several locks, in the order they were taken
}

// newLease makes the first lease of h; its context derives from parent.
func newLease(parent context.Context, h *hold) *Lease {
	l := makeLease(parent, h, &h.first)
	h.add(l.grip)
	l.follow(parent)
	return l
}

// makeLease makes a lease that h does not know yet.
func makeLease(parent context.Context, h *hold, g *grip) *Lease {
	l := &Lease{grip: g}
	g.hold = h
	g.inner, g.cancel = context.WithCancelCause(parent)
	l.ctx = leaseContext{g.inner, l}
	if h.taken != nil {
		g.lease = l
	}
	return l
}

// Context is derived from the context that Lock was given and ends when the
// lease ends. Its [context.Cause] then is, or wraps, ErrReleased, ErrLost,
// ErrMaxHold, ErrBroken, ErrClosed, or the parent's own cause.
//
// Its Err compares the clock. Its Done channel is closed by a timer, which runs up
// to some milliseconds late after the process was stopped, and so ends a context
// that is derived from it: Err of one that [context.WithTimeout] or the like
// returns may be nil for that long. What must not happen after a loss asks the
// lease, or this context, itself.
//
// A Lock of the same key by the same client under this context re-enters: it
// is granted at once, shares the token, and the lock is freed by the last
// release. The context of the lease that re-entered derives from this one, and so
// ends with the release of either; that is no release of the other.
func (l *Lease) Context() context.Context { return &l.ctx }

// Key returns the key of the lock.
func (l *Lease) Key() string { return l.hold.Key() }

// Owner returns who holds the lease: what WithReentrantOwner or WithName said, or
// host and process id.
func (l *Lease) Owner() string { return l.hold.cfg.owner() }

// ID returns the lease's id in the store.
func (l *Lease) ID() string { return l.hold.ID() }

// Token returns the fencing token: greater than every token given before for
// the key, equal at every depth of re-entry, below 2^53. It is 0 if the store
// mints none. It stays readable after the lease has ended, for a resource to
// refuse it. A lease of [All] has one for each of its [Lease.Parts], and itself
// none.
func (l *Lease) Token() int64 {
	if l.live(); l.parts != nil {
		return 0
	}
	return l.hold.Token()
}

// Parts returns the leases of the single locks that a lease of [All] is made
// of, in the order of their keys; of any other lease, the lease itself.
func (l *Lease) Parts() []*Lease {
	if l.whole == nil {
		return []*Lease{l}
	}
	return slices.Clone(l.whole)
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
	if cause := context.Cause(l.inner); errors.Is(cause, ErrLost) {
		return Lost
	}
	return Released
}

// released reports whether the lease was given back, and not because it had reached
// its maximum.
func (l *Lease) released() bool {
	return l.State() == Released && !errors.Is(context.Cause(l.inner), ErrMaxHold)
}

// Deadline returns the local time at which the lease is over unless it is
// renewed before.
func (l *Lease) Deadline() time.Time {
	deadline := l.hold.Deadline()
	for _, p := range l.parts {
		if d := p.hold.Deadline(); d.Before(deadline) {
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
	if err := driver.Supports(l.hold.c.session.Driver(), driver.Request{TTL: ttl}); err != nil {
		return lockError(l.Key(), err)
	}
	done, err := l.hold.Extend(ttl)
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
		return lockError(l.Key(), fmt.Errorf("extend: %w: %w", ErrUnknown, session.CauseOf(ctx)))
	}
}

// Release gives the lease back and hands the lock on. It needs no context, is
// bounded by WithReleaseTimeout, waits for the store's answer, and may be
// called any number of times: all calls return the result of the first.
//
// The error matches ErrLost if the lease had ended before, so that the work was
// not protected to its end (together with ErrMaxHold, ErrBroken or ErrClosed if
// that is why), and ErrUnknown if the store did not confirm the release in time;
// it is then repeated in the background, until the lease ends by its TTL at the
// latest. What counts is whether the lease was live when Release was called.
func (l *Lease) Release() error {
	return l.giveBack()
}

// Detach ends the lease here and leaves it in the store, to be renewed and
// released by its id from elsewhere: by the next process of a script, for
// instance, or by [Mutex.Adopt]. The lease is renewed once by the way, so that whoever takes it over
// has its TTL from now on, and ends after that unless it is renewed. The context
// ends with ErrReleased, and Release returns nil and does nothing. Nobody
// re-enters meanwhile: a Lock under the lease's context fails with ErrMismatch.
//
// The error matches ErrMismatch if the lease is one of [All], is shared by
// re-entry, or is one of whose [Lease.Downgrade] the outcome is not known; ErrNotHeld if it has ended; and ErrUnknown if ctx ended before the
// store answered; then the lease is as it was before.
func (l *Lease) Detach(ctx context.Context) error {
	if l.parts != nil {
		return lockError(l.Key(), fmt.Errorf("detach of several locks at once: %w", ErrMismatch))
	}
	ttl, err := l.hold.leave()
	if err != nil {
		return lockError(l.Key(), fmt.Errorf("detach: %w", err))
	}
	defer l.hold.stay()
	if err := l.Extend(ctx, ttl); err != nil {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrNotHeld, ErrReleased) // by a Release in between
	_ = l.endOnce(func() error {
		l.hold.unfollow(l.grip)
		err, _ = l.hold.remove(l.grip, ErrReleased)
		if l.cancel(ErrReleased); err == nil {
			l.hold.c.counts.gaveBack(nil)
		}
		return err
	})
	if err != nil {
		return lockError(l.Key(), fmt.Errorf("detach: %w", err))
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
	if r, ok := key.(*request); ok && r.c == c.lease.hold.c && r.key == c.lease.hold.Key() {
		return c.lease
	}
	return c.Context.Value(key)
}
