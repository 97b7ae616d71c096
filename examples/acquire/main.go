// Acquire takes a lock in the shape of context.WithDeadline: a context, a
// function to give it back, an error. The work runs under the context, which
// ends with the lease, and with the caller's own context.
//
// Output:
//
//	order 42 is charged
//	after the release the context has ended: lease released
//	the caller's time is up: context deadline exceeded
//	the lock is free again
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

const (
	key = "acquire/orders/42"
	ttl = 10 * time.Second
)

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	client := store.Client()

	leaseCtx, release, err := client.Acquire(ctx, key, ttl)
	if err != nil {
		return err
	}
	if err := charge(leaseCtx); err != nil {
		return err
	}
	if err := release(); err != nil {
		return err // ErrLost: the work was not protected to its end
	}
	fmt.Println("after the release the context has ended:", context.Cause(leaseCtx))

	return cutOff(ctx, client)
}

// cutOff works under a context with a short deadline.
func cutOff(ctx context.Context, client *leasehold.Client) error {
	bound, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	leaseCtx, release, err := client.Acquire(bound, key, ttl)
	if err != nil {
		return err
	}
	<-leaseCtx.Done() // the work
	fmt.Println("the caller's time is up:", context.Cause(leaseCtx))
	// The lock stays closed until the release, which needs no context that lives.
	if err := release(); err != nil {
		return err
	}

	_, release, err = client.Acquire(ctx, key, ttl)
	if err != nil {
		return err
	}
	fmt.Println("the lock is free again")
	return release()
}

func charge(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Println("order 42 is charged")
	return nil
}
