package wire

import (
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Names of the events of a stream.
const (
	// EventReady carries the address of the stream, and tells that what
	// happened before may have been missed.
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
	// Address is what requests give as notify to be told on this stream; empty
	// while the store cannot tell.
	Address string `json:"address"`
}

// Hint is what the store tells about a lease or ticket.
type Hint struct {
	// Key is the lock's, with EventBroken.
	Key     string `json:"key,omitempty"`
	LeaseID string `json:"leaseId"`
	Token   int64  `json:"token,omitempty"`
	// Clock and Confirm tell when the lock was handed over, by the store's
	// clock, and within what time that is to be confirmed.
	Clock   int64  `json:"clockUs,omitempty"`
	Confirm Millis `json:"confirmMs,omitempty"`
	// After is when to ask.
	After  Millis `json:"afterMs,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// HintName is the event of a hint.
func HintName(k driver.HintKind) string {
	switch k {
	case driver.HintGranted:
		return EventGranted
	case driver.HintBroken:
		return EventBroken
	}
	return EventAsk
}

// HintOf is the JSON of a hint.
func HintOf(h driver.Hint) Hint {
	return Hint{
		Key: h.Key, LeaseID: h.ID, Token: h.Token, Clock: h.Clock.Microseconds(), Confirm: Floor(h.ConfirmWindow),
		After: MillisOf(h.RetryAfter), Reason: h.Reason,
	}
}

// Hint is what the JSON says, in terms of a driver. ok is false for an event
// that is about something else.
func (h *Hint) Hint(event string) (hint driver.Hint, ok bool) {
	hint = driver.Hint{
		ID: h.LeaseID, Token: h.Token, Clock: time.Duration(h.Clock) * time.Microsecond,
		ConfirmWindow: h.Confirm.Duration(), RetryAfter: h.After.Duration(), Reason: h.Reason,
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
