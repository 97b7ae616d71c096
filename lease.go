package leasehold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/pinning"
	"github.com/leasehold-go/leasehold/internal/session"
)

// State is the state of a lease, as far as its holder can observe it: Held or Unconfirmed while
// the lease is valid, and afterwards the way in which it ended.
type State uint8

const (
	// Held: the lease is valid and the last renewal succeeded.
	Held State = iota
	// Unconfirmed: the lease is valid, but the last renewal failed. It heals
	// when a renewal succeeds before the deadline.
	Unconfirmed
	// Lost: the lease was not renewed in time, the store no longer had it, or it was broken.
	Lost
	// Released: the lease was given back by Release, or left by Detach.
	Released
	// MaxHoldReached: the context of the lease ended at its WithMaxHold. The lock stays
	// closed as after ContextEnded.
	MaxHoldReached
	// ClientClosed: the lease was given back by [Client.Close].
	ClientClosed
	// ContextEnded: the context that Lock was given ended before Release. The lock stays
	// closed until Release, or until the lease expires: then the state is Lost.
	ContextEnded
)

var states = [...]string{"held", "unconfirmed", "lost", "released", "max_hold", "closed", "context"}

// String returns a word for the state: "held", "unconfirmed", "lost", "released",
// "max_hold", "closed" or "context". The last four are words of [EndedInfo.Reason],
// too.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Live reports whether a lease in this state is valid.
func (s State) Live() bool { return s <= Unconfirmed }

// stateAfter returns the state of a lease that ended with cause.
func stateAfter(cause error) State {
	switch {
	case errors.Is(cause, ErrContextEnded): // first, since it wraps the cause of that context
		return ContextEnded
	case errors.Is(cause, ErrMaxHold):
		return MaxHoldReached
	case errors.Is(cause, ErrClosed):
		return ClientClosed
	case errors.Is(cause, ErrLost):
		return Lost
	}
	return Released
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
// A lease is renewed for as long as the process lives, also if the program no longer refers to
// it; see [WithLogger].
type Lease struct{ *entry }

// newLease makes a lease of the entry e, which is not yet added to h.
func newLease(parent context.Context, h *hold, e *entry) *Lease {
	e.hold, e.parent, e.ended = h, parent, parent.Done()
	l := &e.own
	if h.taken != nil {
		l = new(Lease)
		e.lease = l
	}
	l.entry = e
	return l
}

// Context is derived from the context that Lock was given. It ends with that context, at
// WithMaxHold, or when the lease ends. Its [context.Cause] then is, or wraps, ErrReleased, ErrLost,
// ErrMaxHold, ErrBroken, ErrClosed, or the parent's own cause.
//
// Its Err compares the clock. Its Done channel is closed by a timer, which may run some
// milliseconds late after the process was stopped, and by up to the time to live after the
// machine was suspended. For that long Err of a context that derives from it, such as one
// of [context.WithTimeout], may be nil. Work that must not happen after a loss asks the
// lease, or this context, itself.
//
// A Lock of the same key by the same client under this context re-enters: it is granted
// at once, shares the token, and the lock is freed by the last release. The context of
// the lease that re-entered derives from this one, and so ends with the release of
// either lease. The release of one does not release the other.
func (l *Lease) Context() context.Context { return (*leaseContext)(l) }

// Key returns the key of the lock.
func (l *Lease) Key() string { return l.hold.Key() }

// Owner returns the owner of the lease: that of WithReentrantOwner or WithName, or host and
// process id. For an adopted lease it is the owner that the store shows; see [Mutex.Adopt].
func (l *Lease) Owner() string { return l.hold.cfg.owner() }

// ID returns the lease's id in the store.
func (l *Lease) ID() string { return l.hold.ID() }

// Token returns the fencing token: greater than every token given before for
// the key, equal at every depth of re-entry, below 2^53. It is 0 if the store mints no tokens.
// It can be read after the lease has ended, so that a resource can refuse it.
func (l *Lease) Token() int64 {
	l.live()
	return l.hold.Token()
}

// Places returns the numbers of the places of a [Semaphore] that the lease has, ascending, from 0 to
// the limit - 1. No other live lease has one of them, and they never change. It is empty for other
// locks, and with a limit above 1024.
func (l *Lease) Places() []int { return l.hold.Places().Numbers() }

// Wanted returns a channel that closes once a waiter is queued, so that long work can step
// aside: it releases, and asks again behind the waiter. The end of the lease does not close it. From the
// first call on, until it closes, the lease is renewed once a second, which is how late it may
// close. It never does without renewal, or on a store without a queue, such as a quorum.
func (l *Lease) Wanted() <-chan struct{} { return l.hold.Wanted() }

// State returns the state of the lease. It compares the clock.
func (l *Lease) State() State {
	if l.Context().Err() == nil {
		if l.hold.Failing() {
			return Unconfirmed
		}
		return Held
	}
	l.hold.mu.Lock()
	state := l.state
	l.hold.mu.Unlock()
	if state != Held {
		return state
	}
	if cause := l.hold.Cause(); cause != nil {
		return stateAfter(cause)
	}
	if cause := l.endCause(); cause != nil {
		return stateAfter(cause)
	}
	return ContextEnded
}

// gone reports whether the lease was released, by Release or by the end of the client.
func (l *Lease) gone() bool {
	state := l.State()
	return state == Released || state == ClientClosed
}

// Deadline returns the local time at which the lease is over unless it is
// renewed before.
func (l *Lease) Deadline() time.Time {
	return clock.Local(l.hold.Deadline())
}

// Remaining returns the time until the deadline, 0 once the lease has ended.
func (l *Lease) Remaining() time.Duration {
	if l.Context().Err() != nil {
		return 0
	}
	return max(time.Until(l.Deadline()), 0)
}

// Extend renews the lease now and makes it last at least ttl from this moment. From
// then on it is renewed for ttl, if that is longer than before: a lease is never
// shortened. Extend returns when the store has confirmed it, or when ctx is done: the
// error then matches ErrUnknown. An error that matches ErrNotHeld means that the lease
// has ended.
//
// ttl is bounded like that of WithTTL. If the store cannot serve it, the error matches
// ErrUnsupported, or ErrInvalid where a service allows less, and the lease is renewed as
// before. If the error also matches ErrUnknown, an earlier request got no answer: the
// store may then keep the lease for ttl, unless it is released. If the store refuses even
// the time to live that the lease has now, this counts as a failed renewal for
// [WithMaxRenewAttempts].
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := check.Range("TTL", ttl, MinTTL, MaxTTL); err != nil {
		return lockError(l.Key(), err)
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
// The error matches ErrLost if the lease had been lost before, so that the work was not
// protected to its end, together with ErrBroken or ErrClosed if that is why. It is nil if
// only the context had ended, because that of Lock did or at WithMaxHold, and the lock was
// held to this moment. The error matches ErrUnknown if the store did not confirm
// the release in time, and ErrUnavailable if the store refused it for as long; it is then
// repeated in the background, until the lease ends by its TTL at the latest. A lease counts as
// lost if it was not live when Release was called.
func (l *Lease) Release() error { return l.endThenRelease(func() {}) }

// Detach ends the lease here and leaves it in the store, to be renewed and released by
// its id from elsewhere: by the next process of a script, for instance, or by
// [Mutex.Adopt]. Detach renews the lease once, so that it lives for its TTL from then
// on unless it is renewed again. The context ends with an error that matches ErrReleased, and
// a later Release does nothing and returns nil. Observers get the reason "detached". During
// Detach a Lock under the lease's context fails with ErrMismatch.
//
// The error matches ErrMismatch if the lease is shared by re-entry, or if the outcome of
// its [Lease.Downgrade] is unknown; ErrNotHeld if it has ended; and ErrUnknown if ctx
// ended before the store answered. If the store refuses the renewal, Detach returns the
// error that Extend would return. In the last two cases the lease is as it was before.
func (l *Lease) Detach(ctx context.Context) error {
	ttl, err := l.hold.leave()
	if err != nil {
		return lockError(l.Key(), fmt.Errorf("detach: %w", err))
	}
	defer l.hold.stay()
	if err := l.Extend(ctx, ttl); err != nil {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrNotHeld, ErrReleased) // if a Release comes first
	_ = l.end.once(&l.hold.mu, func() error {
		var ended bool
		if _, ended, err = l.hold.remove(l.entry, errDetached); ended {
			defer l.hold.Left(errDetached)
		}
		if l.cancel(errDetached); err == nil {
			l.hold.c.counts.gaveBack(nil)
			l.hold.turn.Abandon()
		}
		return err
	})
	if err != nil {
		return lockError(l.Key(), fmt.Errorf("detach: %w", err))
	}
	return nil
}

// leaseContext ends with the lease. Err compares the clock, and so ends also when no timer has
// run yet.
type leaseContext Lease

// Deadline implements [context.Context].
func (c *leaseContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements [context.Context].
func (c *leaseContext) Done() <-chan struct{} { return c.context().Done() }

// Err is checked against the clock, so that a process that was stopped sees the
// loss at its first look, before any timer has run.
func (c *leaseContext) Err() error {
	c.live()
	return c.current().Err()
}

// leaseKey is the key under which a context returns its innermost lease.
type leaseKey struct{}

// FromContext returns the innermost lease among the contexts that ctx is derived from, for
// example to read its token. It returns false if there is no lease, or if the innermost one is
// of [All]; see [MultiFromContext].
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// Value implements [context.Context].
func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return (*Lease)(c)
	}
	if key == (pinning.Key{}) {
		return func() bool { return c.hold.turn.Keep(&c.hold.Hold) }
	}
	// A request looks for the innermost lease of its own lock that it can re-enter.
	if r, ok := key.(*request); ok && r.c == c.hold.c && r.key == c.hold.Key() && !(*Lease)(c).gone() {
		return (*Lease)(c)
	}
	return c.context().Value(key)
}
