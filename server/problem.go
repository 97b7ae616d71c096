package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Cause is one reason why a request fails. Each has a problem type of its own, which
// docs/http.md documents.
type Cause struct {
	// Name is the last part of the problem type.
	Name   string
	Status int
	Title  string
	// Meaning describes the effect, and the action that a client can take.
	Meaning string
}

// Type returns the problem type, a URI.
func (c *Cause) Type() string { return wire.ProblemTypes + c.Name }

// The causes.
var (
	Held = &Cause{wire.CauseHeld, http.StatusConflict, "The lock is held by others",
		"Ask again after Retry-After, or with waitMs to be queued."}
	Gone = &Cause{wire.CauseGone, http.StatusGone, "The lease has ended",
		"It expired, or was never granted: the work under it was not protected to the end. Take the lock again, with another lease id."}
	Broken = &Cause{wire.CauseBroken, http.StatusGone, "The lease was broken by force",
		"An operator ended it and gave the reason. Stop; take the lock again, with another lease id."}
	Released = &Cause{wire.CauseReleased, http.StatusGone, "The lease has been released",
		"A lease id is used once. Take the lock again, with another lease id."}
	Moved = &Cause{"moved", http.StatusConflict, "The lease has been asked for again",
		"Another request asked for it meanwhile, so it was not released."}
	NotHeld = &Cause{wire.CauseNotHeld, http.StatusNotFound, "There is no such lease",
		"The lease to be broken is not there; the lock is unchanged."}
	Mismatch = &Cause{"mismatch", http.StatusUnprocessableEntity, "The lock is in use in another way",
		"Another limit is in force, or the key holds data that is not a lock. The lock is unchanged; asking again does not help."}
	Invalid = &Cause{"invalid", http.StatusBadRequest, "The request is not valid",
		"The detail names the value and its bounds. The store was not asked."}
	TooLarge = &Cause{"too-large", http.StatusRequestEntityTooLarge, "The body is too large",
		"Send less."}
	Unauthenticated = &Cause{"unauthenticated", http.StatusUnauthorized, "Who asks is not known",
		"Send a bearer token that is valid."}
	Forbidden = &Cause{"forbidden", http.StatusForbidden, "The right is missing",
		"Ask the operator for the right to this verb on this name, or to allow the host that the detail names."}
	NotFound = &Cause{"not-found", http.StatusNotFound, "There is nothing at this path",
		"Look at the path; slashes in a name are sent as %2F, and a proxy removes its prefix."}
	NotAllowed = &Cause{"method-not-allowed", http.StatusMethodNotAllowed, "The path has no such method",
		"The Allow header names its methods."}
	TooMany = &Cause{"too-many-waiters", http.StatusTooManyRequests, "Too many requests wait",
		"Ask again after Retry-After, or wait for fewer locks at a time."}
	Unsupported = &Cause{"unsupported", http.StatusNotImplemented, "The store cannot do this",
		"Asking again does not help; another store can."}
	Unavailable = &Cause{"unavailable", http.StatusServiceUnavailable, "The store cannot be reached",
		"The request had no effect. Ask again after Retry-After."}
	Overloaded = &Cause{"overloaded", http.StatusServiceUnavailable, "The service has too many connections, or pages",
		"The request had no effect. Ask again after Retry-After, or another replica."}
	Draining = &Cause{"draining", http.StatusServiceUnavailable, "The service is about to end",
		"Ask another replica, or again after Retry-After. The request had no effect; a place in the queue is kept for ticketMs."}
	Unknown = &Cause{"unknown", http.StatusGatewayTimeout, "The outcome is not known",
		"The store did not answer in time, and the request may or may not have had its effect. Repeat the request with the same lease id, or release it."}
	Unprotected = &Cause{"unprotected", http.StatusInternalServerError, "The operation was not protected to its end",
		"Its lock was lost while it ran: another holder may have worked at the same time. Check its results before you repeat it."}
	Failed = &Cause{"operation-failed", http.StatusInternalServerError, "The operation failed",
		"It ran under its lock and reported a failure, which is in the log of the service."}
	Internal = &Cause{"internal", http.StatusInternalServerError, "The service has failed",
		"It is a defect: please report it with the request id."}
)

// Causes returns all causes, in the order in which they are documented.
func Causes() []*Cause {
	return []*Cause{
		Held, Gone, Broken, Released, Moved, NotHeld, Mismatch, Invalid, TooLarge, Unauthenticated, Forbidden,
		NotFound, NotAllowed, TooMany, Unsupported, Unavailable, Overloaded, Draining, Unknown, Unprotected, Failed, Internal,
	}
}

// problem is an error with its cause.
type problem struct {
	Cause *Cause
	wire.Problem
}

func (p *problem) Error() string { return cmp.Or(p.Detail, p.Title) }

// newProblem returns an error that is answered with cause. The client receives the detail.
func newProblem(cause *Cause, format string, args ...any) *problem {
	p := &problem{Cause: cause}
	p.Type, p.Title, p.Status = cause.Type(), cause.Title, cause.Status
	p.Detail = fmt.Sprintf(format, args...)
	return p
}

// After sets the time after which the client may ask again.
func (p *problem) After(d time.Duration) *problem {
	p.RetryAfter = wire.MillisOf(max(d, 0))
	return p
}

// retryLater is the time to the next request if no better time is known.
const retryLater = time.Second

// errDraining answers requests that arrive, or wait, while the service drains.
var errDraining = newProblem(Draining, "the service is about to end").After(retryLater)

// problemOf returns an error of a driver as a problem.
func problemOf(err error) *problem {
	var p *problem
	var told check.Error
	var refused interface{ Cause() string } // of package operations
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refused):
		return refusal(refused.Cause(), err)
	case errors.Is(err, session.ErrUnknown): // even if it wraps another error of the store
	case errors.As(err, &told):
		return newProblem(Invalid, "%s", string(told))
	case errors.Is(err, driver.ErrInvalid):
		return newProblem(Invalid, "%v", err)
	case errors.Is(err, driver.ErrMismatch):
		return newProblem(Mismatch, "%v", err)
	case errors.Is(err, errors.ErrUnsupported):
		return newProblem(Unsupported, "%v", err)
	case errors.Is(err, driver.ErrClosed):
		return errDraining
	case errors.Is(err, driver.ErrUnavailable):
		return newProblem(Unavailable, "the store cannot be reached, or refuses to serve").After(retryLater)
	}
	return newProblem(Unknown, "the store did not answer")
}

// refusal returns an error of package operations as a problem.
func refusal(cause string, err error) *problem {
	all := Causes()
	p := newProblem(all[slices.IndexFunc(all, func(c *Cause) bool { return c.Name == cause })], "%v", err)
	if p.Cause == Draining || p.Cause == TooMany {
		return p.After(retryLater)
	}
	return p
}

// seconds returns a duration for a header: whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
