// Package memdriver keeps locks in the memory of one process, for tests and for programs
// of one process. It supports every kind of lock, and is the executable specification of a
// store: the admission rule under a mutex, with hints delivered by function calls.
//
//	client, err := leasehold.New(memdriver.New())
//
// Expiry follows the process's clock, so a lease in a testing/synctest bubble ends in
// virtual time. The store starts no goroutine except for the delivery of hints, and has one
// timer while it has records. A lock that was not used for a minute takes no memory.
package memdriver

import (
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Driver is a store in memory, as one process sees it. It is made by [New] or
// [Driver.Join], and is safe for concurrent use. Clients that share a Driver exclude
// each other, and so do clients of joined Drivers. It has the methods of [driver.Driver],
// [driver.Watcher], [driver.Glancer], [driver.Breaker] and [driver.Marker].
//
// An error means that the call had no effect: it matches [driver.ErrInvalid],
// [driver.ErrMismatch], [driver.ErrAmnesia], [driver.ErrClosed], or [driver.ErrUnavailable] if
// the context has ended. The address of a subscription is never empty before it is closed. List
// returns keys in lexical order. Close ends the driver's subscriptions; its leases and joined
// drivers live on.
type Driver struct {
	*rooms
	table *table
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

var _ driver.Driver = (*Driver)(nil)

// New returns an empty store.
func New() *Driver { return newTable().join() }

// Join returns another driver on the same locks, like that of another process. Close each
// separately.
func (d *Driver) Join() *Driver { return d.table.join() }
