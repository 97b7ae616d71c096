package wire

import (
	"slices"
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

// hints are the events of hints.
var hints = []string{driver.HintAsk: EventAsk, driver.HintGranted: EventGranted, driver.HintBroken: EventBroken}

// HintName returns the event of a hint.
func HintName(k driver.HintKind) string {
	if int(k) < len(hints) {
		return hints[k]
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
	kind := slices.Index(hints, event)
	if kind < 0 {
		return driver.Hint{}, false
	}
	hint = driver.Hint{
		Kind: driver.HintKind(kind), ID: h.LeaseID, Token: h.Token, Clock: time.Duration(h.Clock) * time.Microsecond,
		ConfirmWindow: h.Confirm.Duration(), Places: driver.PlacesOf(h.Places), RetryAfter: h.After.Duration(), Reason: h.Reason,
	}
	if hint.Kind == driver.HintBroken {
		hint.Key = h.Key
	}
	return hint, true
}
