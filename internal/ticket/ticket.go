// Package ticket is how a place in a store's queue is kept: by the library for
// its callers, and by the service for its clients.
package ticket

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

const (
	// life is how long the ticket of a waiter that hears hints lives without
	// being kept alive, every heartbeat.
	life      = 15 * time.Second
	heartbeat = 5 * time.Second
	// PollLife and PollEvery are the same for a waiter that hears no hints
	// and gets the lock by asking.
	PollLife  = 3 * time.Second
	PollEvery = 500 * time.Millisecond
	// WatchEvery is how often the first of a process's waiters for a lock asks:
	// if all who stand before it have died, nobody else tells it.
	WatchEvery = time.Second
	// ConfirmWindow is how long a lock that was handed to a waiter waits to
	// be confirmed, and so what a dead waiter costs the others.
	ConfirmWindow = time.Second
)

// Window is the confirmation window of leases of this TTL.
func Window(ttl time.Duration) time.Duration {
	return min(ConfirmWindow, max(ttl, 100*time.Millisecond))
}

// Life is that of a ticket with the given address for hints, empty for none.
func Life(address string) time.Duration {
	if address == "" {
		return PollLife
	}
	return life
}

// AskIn is when to ask again for a ticket that the store knows by the address
// told, if hints for it now go to address; first tells that it is the first of
// its process's, and next is what the store said of the obstacle before it.
func AskIn(told, address string, first bool, next time.Duration) time.Duration {
	wait := Spread(heartbeat)
	if told == "" {
		wait = Spread(PollEvery)
	}
	if told != address {
		wait = 0 // the store does not know yet where we listen
	}
	if first {
		wait = min(wait, Spread(WatchEvery))
	}
	if next > 0 {
		wait = min(wait, next+time.Millisecond)
	}
	return wait
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
