package leasehold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// Errors of locks, to be compared with errors.Is.
var (
	// ErrHeld: the lock was held during the whole wait. The error is a [*HeldError].
	ErrHeld = errors.New("held by others")
	// ErrLost: the lease ended before it was released; the work was
	// unprotected from then on.
	ErrLost = session.ErrLost
	// ErrReleased: the lease ended because it was released.
	ErrReleased = errors.New("lease released")
	// ErrNotHeld: the lease has already ended, so that it cannot be extended, adopted
	// or broken; or an election has no leader.
	ErrNotHeld = session.ErrNotHeld
	// ErrUnknown: the store did not answer, and the request may or may not have had its
	// effect; or the store refuses to complete a request that it has begun. The client cleans
	// up in the background. Any remains disappear at the end of the TTL at the latest.
	ErrUnknown = session.ErrUnknown
	// ErrNoQuorum: a majority of the stores that a quorum is made of did not
	// answer, so that it is unknown whether the lock is held.
	ErrNoQuorum = driver.ErrNoQuorum
	// ErrNotReplicated: the replicas that were asked for did not acknowledge the renewals of a lost lease
	// (ErrLost), or a lock, which left no traces if the error matches ErrUnavailable; else it matches ErrUnknown.
	ErrNotReplicated = driver.ErrNotReplicated
	// ErrMaxHold: the context of the lease ended because it reached WithMaxHold.
	ErrMaxHold = session.ErrMaxHold
	// ErrBroken: the lease was ended by [Client.Break]. The error matches ErrLost, too.
	ErrBroken = session.ErrBroken
	// ErrContextEnded: the context that Lock was given ended before the lease was released.
	// [EndedInfo] wraps this error and the cause of that context. The [context.Cause] of the
	// lease's own context is that cause alone.
	ErrContextEnded = errors.New("the context given to Lock ended")
	// ErrClosed: the client has been closed.
	ErrClosed = session.ErrClosed

	// ErrInvalid: an argument is out of its bounds. No request was sent.
	ErrInvalid = driver.ErrInvalid
	// ErrMismatch: the lock is in use in a way that contradicts the request,
	// or its key holds data that is not a lock. The store is unchanged.
	ErrMismatch = driver.ErrMismatch
	// ErrUnavailable: the store could not be reached or refused to serve, and the request
	// certainly had no effect.
	ErrUnavailable = driver.ErrUnavailable
	// ErrUnsupported: the store cannot serve this kind of lock.
	ErrUnsupported = errors.ErrUnsupported
)

// HeldError describes the holder of a lock that was not granted. It matches ErrHeld and, if a
// context ended the wait, the context's error.
type HeldError struct {
	Key string
	// Owner of the lease that lasts longest; empty if the store did not name it, or if the
	// position in the queue has changed since.
	Owner string
	// Closed is true if the lock has no holder but is kept closed by WithMinHold or
	// WithLockDelay.
	Closed bool
	// Remaining is the time that the lease had left at the store's last answer; 0 if it is
	// unknown.
	Remaining time.Duration
	// Position is the place in the queue that was reached, 0 without one.
	Position int
	// Waited is how long the call has waited.
	Waited time.Duration
	// Cause ended the wait; nil if the call did not wait.
	Cause error
}

// heldError returns the error for a lock that the store reports as held.
func heldError(key string, a *driver.Reply) *HeldError {
	e := &HeldError{Key: key, Owner: ownerOf(a), Remaining: a.RetryAfter, Closed: a.RetryAfter > 0 && len(a.Holders) == 0}
	if len(a.Holders) > 0 {
		e.Remaining = a.Holders[0].Remaining
	}
	return e
}

// ownerOf returns the owner of the lease that lasts longest, empty if it is unknown.
func ownerOf(a *driver.Reply) string {
	if len(a.Holders) == 0 {
		return ""
	}
	return a.Holders[0].Owner
}

func (e *HeldError) Error() string {
	var b strings.Builder
	owner := e.Owner
	if owner == "" {
		owner = "others"
	}
	if e.Closed {
		fmt.Fprintf(&b, "leasehold: lock %q: closed after its last holder", e.Key)
	} else {
		fmt.Fprintf(&b, "leasehold: lock %q: held by %s", e.Key, owner)
	}
	if e.Remaining > 0 {
		fmt.Fprintf(&b, " for another %s", round(e.Remaining))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": gave up after %s", round(e.Waited))
		if e.Position > 0 {
			fmt.Fprintf(&b, " at place %d", e.Position)
		}
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap makes the error match ErrHeld and its cause.
func (e *HeldError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrHeld}
	}
	return []error{ErrHeld, e.Cause}
}

// errDetached ends a lease that [Lease.Detach] has left in the store.
var errDetached = fmt.Errorf("left in the store: %w", ErrReleased)

// contextEnded is [ErrContextEnded] with the cause of the context.
type contextEnded struct{ cause error }

func (e *contextEnded) Error() string   { return fmt.Sprintf("%v: %v", ErrContextEnded, e.cause) }
func (e *contextEnded) Unwrap() []error { return []error{ErrContextEnded, e.cause} }

// errMaxWait ends a wait bounded by WithMaxWait; it is a deadline.
var errMaxWait error = maxWaitError{}

type maxWaitError struct{}

func (maxWaitError) Error() string        { return "maximum wait reached" }
func (maxWaitError) Is(target error) bool { return target == context.DeadlineExceeded }

// lockError adds the name of the lock to err. Every error of a lock starts with it.
func lockError(key string, err error) error {
	return fmt.Errorf("leasehold: lock %q: %w", key, err)
}

// round rounds a duration to about three digits, for messages.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}
