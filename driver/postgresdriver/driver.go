package postgresdriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Watcher = (*Driver)(nil)
	_ driver.Glancer = (*Driver)(nil) // and so Inspector
	_ driver.Breaker = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
	_ driver.Marker  = (*Driver)(nil)
)

// Acquire asks for a lock, and answers Granted, Queued, Busy, Gone or Resized. The error
// matches [driver.ErrInvalid], [driver.ErrMismatch] or [driver.ErrUnavailable] if nothing
// was changed; otherwise the outcome is unknown, and asking again with the same id is
// safe. It matches [driver.ErrNotReplicated] if the commit did not reach the synchronous
// replicas. See [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return d.rooms.Acquire(ctx, req)
}

// Renew renews leases, confirms grants and keeps places in the queue, 256 locks in one
// transaction, on any connection. It calls each once for every ref, by its index,
// never concurrently. See [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(i int, reply driver.Reply, err error)) {
	d.rooms.Renew(context.WithValue(ctx, urgent{}, renewing), refs, each)
}

// Release ends a lease or leaves the queue, and answers Released, Left, Gone, or Busy if
// the lease belongs to another visit. The next waiter is told by the same transaction.
// Where many calls wait for a connection releases have the next one: behind calls that wait
// for locks they would come too late, each time again. See [driver.Driver].
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return d.rooms.Release(context.WithValue(ctx, urgent{}, hurried), ref)
}

// Watch delivers hints to f by LISTEN, one at a time, until it is closed. It does not wait
// for the server: the address is empty until the connection has heard itself, for ever
// behind a pooler in transaction mode without [WithListen]. See [driver.Watcher].
func (d *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) { return d.rooms.Watch(f) }

// Inspect returns one consistent picture of a lock: who holds it and who waits. A lock that
// nobody uses is no error. See [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.rooms.Inspect(ctx, key)
}

// Glance returns the picture of Inspect without those who wait. It reads them, too. See
// [driver.Glancer].
func (d *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.rooms.Glance(ctx, key)
}

// List returns a page of the keys in use that begin with prefix, and the cursor of the
// next page, empty after the last. See [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	return d.rooms.List(ctx, prefix, cursor)
}

// Break ends the lease or the place in the queue id by force, and tells its owner the
// reason. It answers Released, Left, or Gone if id is not there. See [driver.Breaker].
func (d *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return d.rooms.Break(ctx, key, id, reason)
}

// Marked returns the mark by which a quorum knows that the table was not lost. See
// [driver.Marker].
func (d *Driver) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	return d.rooms.Marked(ctx)
}

// Reserve keeps a table without a mark for the process that is about to mark it, for life
// at most. See [driver.Marker].
func (d *Driver) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return d.rooms.Reserve(ctx, by, life)
}

// Mark marks the table unless it has a mark. See [driver.Marker].
func (d *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	return d.rooms.Mark(ctx, mark, by)
}

// Close ends the subscriptions and closes the connections that the driver has made, but
// not the pool that was given to [New]. Later calls fail with [driver.ErrClosed]. Calling
// it again does nothing.
func (d *Driver) Close() error { return d.rooms.Close() }
