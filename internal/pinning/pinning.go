// Package pinning is how a store asks for a lease that it keeps for longer than the lease
// lasts, for the sake of a transaction, not to be passed on without it: see
// leasehold.WithLocalHandover and postgresdriver.Pin.
package pinning

import "context"

// Key asks the context of a lease for a func() bool. It has the process give the lease back
// to the store when it ends, and reports whether that is so: false if it has been passed on
// before, or was given back.
type Key struct{}

// Keep does so with a lease, if it is one of package leasehold. The store knows of any other.
func Keep(lease any) bool {
	l, ok := lease.(interface{ Context() context.Context })
	if !ok {
		return true
	}
	keep, ok := l.Context().Value(Key{}).(func() bool)
	return !ok || keep()
}
