package wire

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Names of the events of a stream.
const (
	// EventReady carries the address of the stream. Events before it may have been missed.
	EventReady = "ready"
	// EventAsk, EventGranted and EventBroken carry a Hint.
	EventAsk     = "ask"
	EventGranted = "granted"
	EventBroken  = "broken"
	// EventLock carries a Lock.
	EventLock = "lock"
)

// Ready is the data of EventReady.
type Ready struct {
	// Address is the value of notify in requests, for hints on this stream; empty while the
	// store cannot send hints.
	Address string `json:"address"`
}

// Hint is a message of the store about a lease or ticket.
type Hint struct {
	// Key is the lock's, with EventBroken.
	Key     string `json:"key,omitempty"`
	LeaseID string `json:"leaseId"`
	Token   int64  `json:"token,omitempty"`
	// Clock is the time of a hand-over by the store's clock, and Confirm the time within which
	// it has to be confirmed.
	Clock   int64  `json:"clockUs,omitempty"`
	Confirm Millis `json:"confirmMs,omitempty"`
	// Places are the numbers of the places of a semaphore that were handed over.
	Places []int `json:"places,omitempty"`
	// After is the time until the next request.
	After  Millis `json:"afterMs,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// HintName returns the event of a hint.
func HintName(k driver.HintKind) string {
	switch k {
	case driver.HintGranted:
		return EventGranted
	case driver.HintBroken:
		return EventBroken
	}
	return EventAsk
}

// HintOf returns a hint as JSON.
func HintOf(h driver.Hint) Hint {
	return Hint{
		Key: h.Key, LeaseID: h.ID, Token: h.Token, Clock: h.Clock.Microseconds(), Confirm: Floor(h.ConfirmWindow), Places: h.Places.Numbers(),
		After: MillisOf(h.RetryAfter), Reason: h.Reason,
	}
}

// Hint returns the JSON as the hint of a driver. ok is false for an event that is not a hint.
func (h *Hint) Hint(event string) (hint driver.Hint, ok bool) {
	hint = driver.Hint{
		ID: h.LeaseID, Token: h.Token, Clock: time.Duration(h.Clock) * time.Microsecond,
		ConfirmWindow: h.Confirm.Duration(), Places: driver.PlacesOf(h.Places), RetryAfter: h.After.Duration(), Reason: h.Reason,
	}
	switch event {
	case EventAsk:
		hint.Kind = driver.HintAsk
	case EventGranted:
		hint.Kind = driver.HintGranted
	case EventBroken:
		hint.Kind, hint.Key = driver.HintBroken, h.Key
	default:
		return driver.Hint{}, false
	}
	return hint, true
}
