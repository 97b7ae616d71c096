package leasehold

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/session"
)

// WaitEvent is what a call that waits for a lock knows about its wait.
type WaitEvent struct {
	// Key is that of the lock.
	Key string
	// Position is the place in the queue, 1 for the head.
	Position int
	// Holder is the lease that stays longest, as the store described it last, with
	// what is left of it by now unless it was renewed. Later answers only tell the
	// place, so that it is not known any more when that has changed: then it has no
	// ID, and only Remaining at the head of the queue. [Client.Inspect] tells who
	// holds it now.
	Holder Holder
	// Waited is how long the call has waited.
	Waited time.Duration
}

type observerKey struct{}

// ObserveWait returns a context under which a Lock that has to wait in the
// queue calls f: when it has been queued, and with every later answer of the
// store, at least every 5 seconds while the store answers. It is for showing a
// wait to people.
//
// f is called by the goroutine that called Lock, so it needs no locking, and is
// not called once Lock has returned. The lock is not taken while f runs:
// f must be quick.
func ObserveWait(ctx context.Context, f func(WaitEvent)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// observer returns what tells the function that ctx carries how a wait for the lock
// goes on, nil if there is none.
func (r *request) observer(ctx context.Context) func(session.Progress) {
	f, ok := ctx.Value(observerKey{}).(func(WaitEvent))
	if !ok {
		return nil
	}
	return func(p session.Progress) {
		f(WaitEvent{Key: r.key, Position: p.Position, Holder: p.Holder, Waited: p.Waited})
	}
}
