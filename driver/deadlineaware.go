package driver

import "time"

// DeadlineAware is implemented by stores whose calls end soon after the deadline of
// their context by themselves, so that nobody has to close its Done channel
// then: the library spares a timer for each call. They react to a cancellation like
// every store. A wrapper need not implement it.
type DeadlineAware interface {
	Driver
	// CallTimeout returns the time after which a request that is not answered is
	// given up in any case: the library need not set a later deadline. 0 if
	// there is none.
	CallTimeout() time.Duration
}
