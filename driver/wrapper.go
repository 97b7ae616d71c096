package driver

// Wrapper is embedded by a type that changes some methods of a driver and keeps the
// rest:
//
//	type counted struct {
//		driver.Wrapper
//		calls atomic.Int64
//	}
//
// The wrapper offers the optional interfaces of its driver: [As] finds them. A type that
// embeds a Driver instead hides them: a client then waits by polling, and can neither
// inspect nor break.
//
// A wrapper that changes an optional method implements that interface, and asks As
// whether the wrapped driver does. [DeadlineAware] is not passed on, since the wrapper's
// own work may not end in time.
type Wrapper struct{ Driver }

// Unwrap returns the driver inside.
func (w Wrapper) Unwrap() Driver { return w.Driver }

// As returns d, or the first driver inside it, that implements T: an optional interface
// such as [Watcher]. A driver has another inside if it has a method
//
//	Unwrap() Driver
//
// that always returns the same driver, as [Wrapper] has.
func As[T any](d Driver) (found T, ok bool) {
	for d != nil {
		if found, ok = d.(T); ok {
			return found, true
		}
		outer, wraps := d.(interface{ Unwrap() Driver })
		if !wraps {
			break
		}
		d = outer.Unwrap()
	}
	return found, false
}
