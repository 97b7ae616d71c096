package leasehold

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// WaitEvent is what a call that waits for a lock knows about its wait.
type WaitEvent struct {
	// Key is that of the lock.
	Key string
	// Position is the place in the queue, 1 for the head.
	Position int
	// Holder is the lease that stays longest, as the store described it last,
	// which may have been when the wait began: later answers only tell the
	// place. Zero if it did not. [Client.Inspect] tells who holds it now.
	Holder driver.Holder
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

// observer returns the function that ctx carries, nil if there is none.
func observer(ctx context.Context) func(WaitEvent) {
	f, _ := ctx.Value(observerKey{}).(func(WaitEvent))
	return f
}

// event describes the wait as it is now.
func (w *waiter) event(started time.Time) WaitEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WaitEvent{Key: w.req.Key, Position: w.position, Holder: w.holder, Waited: w.c.now().Sub(started)}
}
