package timing

import "time"

const (
	// life is how long the ticket of a waiter that hears hints lives without
	// being kept alive, every heartbeat.
	life      = 15 * time.Second
	heartbeat = 5 * time.Second
	// pollLife and PollEvery are the same for a waiter that hears no hints
	// and gets the lock by asking.
	pollLife  = 3 * time.Second
	PollEvery = 500 * time.Millisecond
	// WatchEvery is how often the first of a process's waiters for a lock asks:
	// if all who stand before it have died, nobody else tells it.
	WatchEvery = time.Second
	// ConfirmWindow is how long a lock that was handed to a waiter waits to
	// be confirmed, and so what a dead waiter costs all waiters behind it. It does not
	// grow with the TTL: waiters die far more often than a store goes away between a
	// hand-over and its confirmation, and only a request of the waiter shows that it
	// lives. A stopped process keeps its connection.
	ConfirmWindow = time.Second
)

// Window is the confirmation window of leases of this TTL.
func Window(ttl time.Duration) time.Duration {
	return min(ConfirmWindow, max(ttl, 100*time.Millisecond))
}

// TicketLife is that of a ticket with the given address for hints, empty for none.
func TicketLife(address string) time.Duration {
	if address == "" {
		return pollLife
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

// RetryIn is when to ask again for a ticket, known by the address told, after so
// many questions in a row that were not answered: later each time, since a store
// that is behind falls back further by being asked again, and always often enough
// to try twice more in the ticket's life.
func RetryIn(told string, failures int) time.Duration {
	return Spread(min(PollEvery<<min(max(failures-1, 0), 10), TicketLife(told)/6))
}
