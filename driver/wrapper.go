package driver

// Wrapper is embedded by a type that changes what some methods of a driver do, and
// leaves it the rest:
//
//	type counted struct {
//		driver.Wrapper
//		calls atomic.Int64
//	}
//
// What the driver can do beyond [Driver] the wrapper can do too: [As] finds it. A
// type that embeds a Driver instead hides it: a client then waits by polling, and
// can neither inspect nor break.
//
// A wrapper that changes an optional method implements that interface, and asks
// As whether the driver inside does. [DeadlineAware] is not passed on, since only a
// wrapper knows whether what it adds ends in time.
type Wrapper struct{ Driver }

// Unwrap returns the driver inside.
func (w Wrapper) Unwrap() Driver { return w.Driver }

// As returns d, or the first driver inside it, that implements T: an optional
// interface such as [Watcher]. A driver has one inside if it has a method
//
//	Unwrap() Driver
//
// which always returns the same, as that of [Wrapper] does.
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
