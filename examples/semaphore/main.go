// Semaphore lends the four GPUs of a pool to jobs that need one or several of
// them. A place is leased: a job that crashes returns it. Small jobs that come later
// do not starve a job that needs many places.
//
// Output:
//
//	render has 2 of 4, encode has 1
//	a job for 2 does not fit, and does not wait
//	train waits for 3
//	thumbs waits for 1: one is free, but train was first
//	render leaves
//	train has 3
//	thumbs has 1
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	client := store.Client()
	pool := client.Semaphore("semaphore/gpu", 4) // all jobs state the same limit

	render, err := pool.LockN(ctx, 2)
	if err != nil {
		return err
	}
	encode, err := pool.Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("render has 2 of 4, encode has 1")

	if _, err := pool.TryLockN(ctx, 2); !errors.Is(err, leasehold.ErrHeld) {
		return fmt.Errorf("5 of 4 places: %w", err)
	}
	fmt.Println("a job for 2 does not fit, and does not wait")

	train := example.Queue(ctx, func(ctx context.Context) error { return job(ctx, pool, "train", 3) })
	fmt.Println("train waits for 3")
	thumbs := example.Queue(ctx, func(ctx context.Context) error { return job(ctx, pool, "thumbs", 1) })
	fmt.Println("thumbs waits for 1: one is free, but train was first")

	fmt.Println("render leaves")
	return errors.Join(render.Release(), train(), thumbs(), encode.Release())
}

// job waits for n places and returns them when it is done.
func job(ctx context.Context, pool *leasehold.Semaphore, name string, n int) error {
	lease, err := pool.LockN(ctx, n)
	if err != nil {
		return err
	}
	fmt.Println(name, "has", n)
	return lease.Release()
}
