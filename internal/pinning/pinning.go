// Package pinning lets a store prevent that a lease is passed on inside the process. The store
// needs this if it keeps a lock closed beyond the lease, for a transaction: see
// leasehold.WithLocalHandover and postgresdriver.Pin.
package pinning

import "context"

// Key is the key under which the context of a lease returns a func() bool. The function makes
// the process give the lease back to the store when it ends. It reports false if the lease was
// passed on or given back before.
type Key struct{}

// Keep calls that function of a lease of package leasehold. It reports true for other leases,
// which are always given back to the store.
func Keep(lease any) bool {
	l, ok := lease.(interface{ Context() context.Context })
	if !ok {
		return true
	}
	keep, ok := l.Context().Value(Key{}).(func() bool)
	return !ok || keep()
}
