package driver

import "time"

// DeadlineAware is implemented by stores whose calls observe the deadline of their context
// without its Done channel: the library then spares a timer for each call. They react to a
// cancellation like every store. A wrapper need not implement it.
type DeadlineAware interface {
	Driver
	// CallTimeout returns the time limit of the store itself for an unanswered request,
	// so that the library need not set a later deadline; 0 means that there is no limit.
	CallTimeout() time.Duration
}
