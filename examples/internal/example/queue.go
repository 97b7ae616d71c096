package example

import (
	"context"
	"sync"

	"github.com/leasehold-go/leasehold"
)

// Queue starts f, and returns once the lock that f waits for has queued it, or
// f has ended. What it returns waits for the end of f.
//
// A program has no need of it; an example that tells who came first has.
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
