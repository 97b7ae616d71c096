package timing

import "time"

const (
	// hintedLife is how long the ticket of a waiter with hints lives without being renewed,
	// and heartbeat the interval of its renewals.
	hintedLife = 15 * time.Second
	heartbeat  = 5 * time.Second
	// pollLife and PollEvery are the same for a waiter without hints, which polls.
	pollLife  = 3 * time.Second
	PollEvery = 500 * time.Millisecond
	// WatchEvery is how often the first of a process's waiters for a lock asks: if all
	// waiters before it in the store's queue have died, it gets no hint.
	WatchEvery = time.Second
	// ConfirmWindow is how long a handed-over lock waits for its confirmation, and so
	// the delay that a dead waiter causes. It does not grow with the TTL: waiters die far
	// more often than a store goes away between a hand-over and its confirmation, and only
	// a request of the waiter shows that it lives. A stopped process keeps its connection.
	ConfirmWindow = time.Second
)

// Window returns the confirmation window of leases of this TTL.
func Window(ttl time.Duration) time.Duration {
	return min(ConfirmWindow, max(ttl, 100*time.Millisecond))
}

// TicketLife returns the life of a ticket with the given address for hints, which may be "".
func TicketLife(address string) time.Duration {
	if address == "" {
		return pollLife
	}
	return hintedLife
}

// AskIn returns when to renew a ticket. told is its address in the store, and address the
// present one; first reports whether it is the first of its process's, and next is the
// store's estimate for the obstacle before it.
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

// RetryIn returns when to renew a ticket again after so many failures in a row. The pauses
// grow, since repeated requests slow an overloaded store down further, but are short enough
// for two more tries in the ticket's life. told is the ticket's address in the store.
func RetryIn(told string, failures int) time.Duration {
	return Spread(min(PollEvery<<min(max(failures-1, 0), 10), TicketLife(told)/6))
}
