package wire

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Acquire is the body of a request for a lock.
type Acquire struct {
	// Key names the lock where the path does not.
	Key string `json:"key,omitempty"`
	// LeaseID is chosen by the client, so that the request can be repeated.
	LeaseID string  `json:"leaseId,omitempty"`
	Mode    string  `json:"mode,omitempty"`
	Policy  string  `json:"policy,omitempty"`
	Limit   Whole   `json:"limit,omitempty"`
	Permits Whole   `json:"permits,omitempty"`
	TTL     *Millis `json:"ttlMs,omitempty"`
	// Wait is how long the answer may be held back until the lock is granted.
	Wait Millis `json:"waitMs,omitempty"`
	// Ticket is how long the place in the queue is kept after the answer.
	Ticket    *Millis           `json:"ticketMs,omitempty"`
	Owner     string            `json:"owner,omitempty"`
	Reentrant bool              `json:"reentrant,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Since     time.Time         `json:"since,omitzero"`
	MinToken  Whole             `json:"minToken,omitempty"`
	LockDelay Millis            `json:"lockDelayMs,omitempty"`
	// Confirm is the time within which a renewal has to confirm a hand-over that the event
	// stream reports.
	Confirm Millis `json:"confirmMs,omitempty"`
	// Notify is the address of an event stream.
	Notify string `json:"notify,omitempty"`
	// Visit names the request, so that it can be undone by a release that names it.
	Visit string `json:"visit,omitempty"`
	// Ordered requires the order of the policy: a store without a queue refuses it.
	Ordered bool `json:"ordered,omitempty"`
	// Resize changes the limit in force without taking a place.
	Resize bool `json:"resize,omitempty"`
	// Downgrade turns an exclusive lease into a shared one, without taking a place.
	Downgrade bool `json:"downgrade,omitempty"`
}

// Lease is the answer about one lease or ticket.
type Lease struct {
	Key     string `json:"key,omitempty"`
	LeaseID string `json:"leaseId"`
	State   string `json:"state"`
	// Again is true if the lease was granted, or released, by an earlier request.
	Again bool `json:"again,omitempty"`
	// Repeated is true if the store left a request unanswered, which may still arrive.
	Repeated bool `json:"repeated,omitempty"`

	Token int64 `json:"token,omitempty"`
	Holds int   `json:"holds,omitempty"`
	// Places are the numbers of the places of a semaphore.
	Places []int `json:"places,omitempty"`
	// Wanted is true for a lease if a waiter is queued.
	Wanted bool `json:"wanted,omitempty"`

	TTL Millis `json:"ttlMs,omitempty"`
	// Remaining is the shortest time that the lease has left when the answer is sent.
	Remaining Millis `json:"remainingMs,omitempty"`
	// Position is the place in the queue, 1 for the head.
	Position int `json:"position,omitempty"`
	// FreeIn is the time until the obstacle may expire.
	FreeIn Millis `json:"freeInMs,omitempty"`
	// Ticket is how long the place is kept.
	Ticket Millis `json:"ticketMs,omitempty"`
	// RetryAfter is when to ask again, so that the place is kept.
	RetryAfter Millis `json:"retryAfterMs,omitempty"`
	// Clock is the store's clock in microseconds.
	Clock   int64    `json:"clockUs,omitempty"`
	Holders []Holder `json:"holders,omitempty"`
	Broken  bool     `json:"broken,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// LeaseOf returns a reply as JSON.
func LeaseOf(key, id string, r driver.Reply) Lease {
	l := Lease{
		Key: key, LeaseID: id, State: StateName(r.State), Token: r.Token, Holds: r.Holds, Places: r.Places.Numbers(), Wanted: r.Wanted,
		Position: r.Position, FreeIn: MillisOf(r.RetryAfter), Clock: r.Clock.Microseconds(),
		Broken: r.Broken, Reason: r.Reason, Again: r.Replayed,
	}
	for _, h := range r.Holders {
		l.Holders = append(l.Holders, HolderOf(h))
	}
	return l
}

// Reply returns the JSON as the reply of a driver.
func (l *Lease) Reply() (driver.Reply, error) {
	state, err := ParseState(l.State)
	if err != nil {
		return driver.Reply{}, err
	}
	r := driver.Reply{
		State: state, Token: l.Token, Holds: l.Holds, Places: driver.PlacesOf(l.Places), Wanted: l.Wanted, Position: l.Position, RetryAfter: l.FreeIn.Duration(),
		Clock: time.Duration(l.Clock) * time.Microsecond, Broken: l.Broken, Reason: l.Reason, Replayed: l.Again,
	}
	for i := range l.Holders {
		r.Holders = append(r.Holders, l.Holders[i].Holder())
	}
	return r, nil
}

// Renew is the body of a renewal.
type Renew struct {
	// Key and LeaseID name the lease where the path does not.
	Key     string  `json:"key,omitempty"`
	LeaseID string  `json:"leaseId,omitempty"`
	TTL     *Millis `json:"ttlMs,omitempty"`
	Ticket  *Millis `json:"ticketMs,omitempty"`
	Notify  string  `json:"notify,omitempty"`
	Visit   string  `json:"visit,omitempty"`
	// MinToken raises the token of the lease, and with Level lowers it.
	MinToken Whole `json:"minToken,omitempty"`
	Level    bool  `json:"level,omitempty"`
}

// Renewals is the body of a batch renewal.
type Renewals struct {
	Leases []Renew `json:"leases"`
}

// Renewed is the answer to a batch: one for each lease, in the same order.
type Renewed struct {
	Leases []Renewal `json:"leases"`
}

// Renewal is one answer of a batch: the answer of a single renewal, or its problem.
type Renewal struct {
	Lease
	Problem *Problem `json:"problem,omitempty"`
}

// Release is the body of a release that does not name the lease in its path.
type Release struct {
	Key     string  `json:"key"`
	LeaseID string  `json:"leaseId"`
	Keep    Millis  `json:"keepMs,omitempty"`
	Forbid  *Millis `json:"forbidMs,omitempty"`
	Visit   string  `json:"visit,omitempty"`
}

// Break is the body of a break.
type Break struct {
	// Key names the lock where the path does not.
	Key     string `json:"key,omitempty"`
	LeaseID string `json:"leaseId"`
	Reason  string `json:"reason"`
}
