// Package memdriver keeps locks in the memory of one process. It is the
// executable specification of a store, and what tests use: the rule of package
// internal/room under a mutex, with hints delivered by function calls.
//
// Expiry follows the process's clock, so that a lease in a testing/synctest
// bubble ends in virtual time.
package memdriver

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Driver is a set of rooms, as one process sees it. Clients that share a Driver
// exclude each other, and so do those whose Drivers are joined. Closing a Driver
// ends its subscriptions; stores that were joined, and all leases, live on.
type Driver struct {
	*roomdriver.Driver
	table *table
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Watcher   = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Breaker   = (*Driver)(nil)
	_ driver.Marker    = (*Driver)(nil)
)

// New returns an empty store.
func New() *Driver { return newTable().store() }

// Join returns another driver on the same rooms, the way another process would
// have one. Each is closed by itself.
func (s *Driver) Join() *Driver { return s.table.store() }
