package rueidisdriver

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.DeadlineAware = (*Driver)(nil)
	_ driver.Watcher       = (*Driver)(nil)
	_ driver.Glancer       = (*Driver)(nil) // and so Inspector
	_ driver.Breaker       = (*Driver)(nil)
	_ driver.Checker       = (*Driver)(nil)
	_ driver.Marker        = (*Driver)(nil)
)

// Acquire asks for a lock by one script call, and answers Granted, Queued, Busy,
// Gone or Resized. With [WithReplicas] a grant is answered once the replicas
// have it. The error matches [driver.ErrInvalid], [driver.ErrMismatch] or
// [driver.ErrUnavailable] if nothing was changed; otherwise the outcome is
// unknown, and asking again with the same id is safe. See [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	return d.store.Acquire(ctx, req)
}

// Renew renews leases, confirms grants and keeps places in the queue, many of them
// by one script call, on connections of their own. It calls each once for every
// ref, by its index, never concurrently. With [WithReplicas] a renewal is
// confirmed once the replicas have it. See [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(i int, reply driver.Reply, err error)) {
	d.store.Renew(ctx, refs, each)
}

// Release ends a lease or leaves the queue by one script call, and answers Released,
// Left, Gone, or Busy if the lease belongs to another visit. The next waiter
// is told in the same step. See [driver.Driver].
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return d.store.Release(ctx, ref)
}

// Watch delivers hints to f by a subscription, one at a time, until it is closed. It
// does not wait for the server: the address is empty until the server has
// confirmed the subscription, and while its connection is lost. See
// [driver.Watcher].
func (d *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) { return d.store.Watch(f) }

// Inspect returns one consistent picture of a lock: who holds it and who waits. A
// lock that nobody uses is no error. See [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.store.Inspect(ctx, key)
}

// Glance returns the picture of Inspect without those who wait, at a cost that
// does not grow with their number. See [driver.Glancer].
func (d *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return d.store.Glance(ctx, key)
}

// List returns a page of the keys in use that begin with prefix, and the cursor of
// the next page, empty after the last. It uses SCAN, on each node of a cluster in
// turn, so a page may be empty. Locks of other libraries are listed too, but not if
// the prefix of [WithPrefix] is empty. See [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	return d.store.List(ctx, prefix, cursor)
}

// Break ends the lease or the place in the queue id by force, and tells its owner the
// reason: 1 to 256 bytes of UTF-8 without control characters. It answers
// Released, Left, or Gone if id is not there. See [driver.Breaker].
func (d *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return d.store.Break(ctx, key, id, reason)
}

// Check looks for settings of the servers that make locks unsafe, such as an
// eviction policy. It asks with INFO, CONFIG GET, CLUSTER INFO, TIME and SCAN; a
// command that the user may not run is a finding, and no error. It changes nothing.
// See [driver.Checker].
func (d *Driver) Check(ctx context.Context) (driver.Report, error) { return d.store.Check(ctx) }

// Marked returns the mark by which a quorum knows that the server has not lost its
// data. See [driver.Marker].
func (d *Driver) Marked(ctx context.Context) (mark driver.Mark, ok bool, err error) {
	return d.store.Marked(ctx)
}

// Reserve keeps a server without a mark for the process that is about to mark it,
// for life at most. See [driver.Marker].
func (d *Driver) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return d.store.Reserve(ctx, by, life)
}

// Mark marks the server unless it has a mark. See [driver.Marker].
func (d *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	return d.store.Mark(ctx, mark, by)
}

// CallTimeout returns the timeout of [WithTimeout]: no call takes longer, and each
// ends by itself at the deadline of its context. See [driver.DeadlineAware].
func (d *Driver) CallTimeout() time.Duration { return d.store.CallTimeout() }

// Close ends the subscriptions and closes the connections that the driver has
// made. Later calls fail with [driver.ErrClosed].
// Calling it again does nothing.
func (d *Driver) Close() error { return d.store.Close() }
