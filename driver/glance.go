package driver

import (
	"context"
	"errors"
	"fmt"
)

// Glancer is implemented by an [Inspector] whose picture of a room costs time for every
// waiter, and that has a cheaper picture without them. A thousand candidates that look at
// a leader would otherwise read a million tickets.
type Glancer interface {
	Inspector
	// Glance returns the picture of [Inspector.Inspect] without Waiters, at a cost that
	// does not grow with their number. Limit is the limit of the present holders.
	Glance(ctx context.Context, key string) (Snapshot, error)
}

// Glance returns the picture of a room without its waiters, by Glancer if the driver has
// it. The error matches [errors.ErrUnsupported] if the driver is no [Inspector].
func Glance(ctx context.Context, d Driver, key string) (Snapshot, error) {
	in, ok := As[Inspector](d)
	if !ok {
		return Snapshot{}, fmt.Errorf("the store cannot be looked into: %w", errors.ErrUnsupported)
	}
	if g, ok := in.(Glancer); ok {
		return g.Glance(ctx, key)
	}
	snap, err := in.Inspect(ctx, key)
	snap.Waiters = nil
	return snap, err
}
