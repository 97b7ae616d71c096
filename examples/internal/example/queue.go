package example

import (
	"context"
	"sync"

	"github.com/leasehold-go/leasehold"
)

// Queue starts f, and returns when f waits in the queue of a lock, or has ended. The
// returned function waits for the end of f. Examples use it to fix the order of arrival.
func Queue(ctx context.Context, f func(context.Context) error) (wait func() error) {
	queued := make(chan struct{})
	ended := make(chan error, 1)
	tell := sync.OnceFunc(func() { close(queued) })
	go func() {
		defer tell()
		ended <- f(leasehold.ObserveWait(ctx, func(leasehold.WaitEvent) { tell() }))
	}()
	<-queued
	return func() error { return <-ended }
}
