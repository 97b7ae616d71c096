// Package memdriver keeps locks in the memory of one process, for tests and for programs
// of one process. It knows every kind of lock, and is the executable specification of a
// store: the admission rule under a mutex, with hints delivered by function calls.
//
//	client, err := leasehold.New(memdriver.New())
//
// Expiry follows the process's clock, so a lease in a testing/synctest bubble ends in
// virtual time. The store starts no goroutine of its own but for the delivery of hints,
// and one timer while it has records. A lock that nobody has used for a minute leaves
// nothing behind.
package memdriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Driver is a store in memory, as one process sees it. It is made by [New] or
// [Driver.Join], and is safe for concurrent use. Clients that share a Driver exclude
// each other, and so do clients of joined Drivers. Beside [driver.Driver] it implements
// [driver.Watcher], [driver.Glancer], [driver.Breaker] and [driver.Marker].
type Driver struct {
	table *table
	store *roomdriver.Driver // of the table
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil) // and so Inspector
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Marker  = (*Driver)(nil)
)

// New returns an empty store.
func New() *Driver { return newTable().join() }

// Join returns another driver on the same locks, as another process would have one.
// Each is closed by itself.
func (d *Driver) Join() *Driver { return d.table.join() }

// Acquire asks for a lock, and answers Granted, Queued, Busy, Gone or Resized. An error
// always means that nothing was changed: it matches [driver.ErrInvalid],
// [driver.ErrMismatch], [driver.ErrAmnesia], [driver.ErrClosed], or
// [driver.ErrUnavailable] if ctx has ended. See [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return d.store.Acquire(ctx, req)
}

// Renew renews leases, confirms grants and keeps places in the queue. It calls each once
// for every ref, by its index, never concurrently. See [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(i int, reply driver.Reply, err error)) {
	d.store.Renew(ctx, refs, each)
}

// Release ends a lease or leaves the queue, and answers Released, Left, Gone, or Busy if
// the lease belongs to another visit. The next waiter is told in the same step. See
// [driver.Driver].
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return d.store.Release(ctx, ref)
}

// Watch delivers hints to f, one at a time, until the subscription is closed. Its address
// is never empty before that. See [driver.Watcher].
func (d *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) { return d.store.Watch(f) }

// Inspect returns one consistent picture of a lock: its holders and waiters. A lock that
// nobody uses is no error. See [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.store.Inspect(ctx, key)
}

// Glance returns the picture of Inspect without the waiters, at a cost that does not grow
// with their number. See [driver.Glancer].
func (d *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.store.Glance(ctx, key)
}

// List returns a page of the keys in use that begin with prefix, in lexical order, and the
// cursor of the next page, empty after the last. See [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	return d.store.List(ctx, prefix, cursor)
}

// Break ends the lease or the place in the queue id by force, and tells its owner the
// reason: 1 to 256 bytes of UTF-8 without control characters. It answers Released, Left,
// or Gone if id is not there. See [driver.Breaker].
func (d *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return d.store.Break(ctx, key, id, reason)
}

// Marked returns the mark by which a quorum knows that the store has not lost its data.
// See [driver.Marker].
func (d *Driver) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	return d.store.Marked(ctx)
}

// Reserve keeps a store without a mark for the process that is about to mark it, for life
// at most. See [driver.Marker].
func (d *Driver) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return d.store.Reserve(ctx, by, life)
}

// Mark marks the store unless it has a mark. See [driver.Marker].
func (d *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	return d.store.Mark(ctx, mark, by)
}

// Close ends the driver's subscriptions. Its leases live on, and so do drivers that were
// joined. Later calls fail with [driver.ErrClosed]. Calling it again does nothing.
func (d *Driver) Close() error { return d.store.Close() }
