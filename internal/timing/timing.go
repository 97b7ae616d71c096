// Package timing holds the only definitions of how long things last between a
// process and a store: of leases, tickets, tries and pauses, and of when an answer
// comes too late. The engine, the service and the stores that ask other stores use
// them.
package timing

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

const (
	// Drift is the default bound of the relative difference between the rates of two
	// clocks.
	Drift = 0.01
	// FirstTry bounds the first try of a request, for stores that do not bound it
	// themselves. Each following try may take twice as long, up to LongestTry: a slow store
	// gets more time to answer.
	FirstTry = 5 * time.Second
	// LongestTry bounds every try. A store that swallowed requests for hours is asked again
	// this soon after it works again.
	LongestTry = 15 * time.Second
	// TryOutage bounds how long a call that does not wait for a lock repeats an
	// unanswered request.
	TryOutage = 10 * time.Second
	// OutageAfter is how long a store gives no answer before an outage is reported.
	OutageAfter = time.Second
	// ForbidFor is how long a store rejects the id of a request that may still arrive:
	// the longest timeout of a request. It does not depend on the lease, whose life may
	// be a day: every rejected id takes memory of the store, and until its end a Redis
	// server serves the lock more slowly.
	ForbidFor = time.Minute
)

// Life returns how long a lease lasts on the local clock. Stores count whole
// milliseconds, hence the 2 ms.
//
// Everything that is computed about the life of a lease counts from one instant:
// its origin, the sending of the request that the store answered. The store's
// clock may have started at any moment since.
func Life(ttl time.Duration, drift float64) time.Duration {
	return ttl - time.Duration(float64(ttl)*drift) - 2*time.Millisecond
}

// TooLate reports whether a lease with this origin is over by now, so that an
// answer which came this late cannot be used.
func TooLate(now, origin time.Time, ttl time.Duration, drift float64) bool {
	return !now.Before(origin.Add(Life(ttl, drift)))
}

// ErrLate is returned for a grant that came too late. If the request is repeated, the store
// counts the lease from then.
var ErrLate = errors.New("the answer took longer than the lease lasts")

// Try returns how long the nth try of a request may take, counted from 1, if left
// remains for all tries: at most half of it, so that a request that the network lost is
// sent again in time.
func Try(n int, left time.Duration) time.Duration {
	return min(FirstTry<<min(n-1, 2), LongestTry, max(left/2, min(left, time.Second), time.Millisecond))
}

// RenewalTry returns how long one try of a renewal may take if left remains of the
// lease: at most half of it, so that another try ends before the deadline.
func RenewalTry(left time.Duration) time.Duration {
	return min(max(left/2, time.Millisecond), LongestTry)
}

// ReleaseTry returns how long one try of a release may take if left remains for all
// tries.
func ReleaseTry(left time.Duration) time.Duration {
	return min(max(left/3, min(left, 100*time.Millisecond)), LongestTry)
}

// BackOff returns the pause before the next try of something that was not answered.
func BackOff(attempt int) time.Duration {
	return min(10*time.Millisecond<<min(attempt, 6), 500*time.Millisecond)
}

// UndoIn returns the pause before the next try to undo something. There may be many to
// be undone, so they ask less and less often.
func UndoIn(attempt int) time.Duration {
	return Spread(min(BackOff(attempt)<<min(max(attempt-6, 0), 2), 2*time.Second))
}

// RenewIn returns the pause after the nth failed renewal in a row, given the time left
// of the lease. At first it is short, since most outages are. If a store certainly did not
// execute the request (notExecuted), because it was unreachable or refused it, a retry is
// cheap, so its return is noticed within a second. A store that does not answer may be
// overloaded. Attempts that are counted are spread over the rest of the lease.
func RenewIn(ttl, left time.Duration, n int, notExecuted, counted bool) time.Duration {
	pause := min(ttl/12, left/4)
	if !counted {
		pause = min(pause, 100*time.Millisecond<<min(n-1, 20))
		if notExecuted {
			pause = min(pause, time.Second)
		}
	}
	return max(pause, time.Millisecond)
}

// Spread varies d by a tenth downwards, so that waiters do not ask in step.
func Spread(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/10))
}

// Final reports whether asking a store again cannot help.
func Final(err error) bool {
	return errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrMismatch) ||
		errors.Is(err, errors.ErrUnsupported) || errors.Is(err, driver.ErrClosed)
}

// Refused reports whether err means that the store refuses this renewal in its present
// form: the lease is unchanged.
func Refused(err error) bool {
	return (errors.Is(err, driver.ErrInvalid) || errors.Is(err, errors.ErrUnsupported)) &&
		!errors.Is(err, driver.ErrMismatch) && !errors.Is(err, driver.ErrClosed)
}

// Permanent reports whether waiting for a store that answers with err is pointless. The
// answer of one node of a quorum does not count.
func Permanent(err error) bool {
	return Final(err) || errors.Is(err, driver.ErrPermanent) && !errors.Is(err, driver.ErrNoQuorum)
}

// OfRead maps the error of a read-only call. It had no effect, so the error matches
// [driver.ErrUnavailable], unless it is more definite.
func OfRead(err error) error {
	if err == nil || Definite(err) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// IsTimeout reports whether err means only that the time limit of a try passed.
func IsTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Uncertain returns err for a caller that must not treat it as definite: it is about a part
// of the request, or about the last of several tries. The result matches everything that
// err matches except [driver.ErrUnavailable].
func Uncertain(err error) error {
	if errors.Is(err, driver.ErrUnavailable) {
		return &uncertain{err}
	}
	return err
}

type uncertain struct{ cause error }

func (e *uncertain) Error() string { return e.cause.Error() }

func (e *uncertain) Is(target error) bool {
	return target != driver.ErrUnavailable && errors.Is(e.cause, target)
}

func (e *uncertain) As(target any) bool { return errors.As(e.cause, target) }

// Definite reports whether err means that the store certainly did not execute the request.
// Earlier tries may have been executed.
func Definite(err error) bool { return errors.Is(err, driver.ErrUnavailable) || Final(err) }
