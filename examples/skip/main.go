// Skip sweeps old files on the host that comes first. Another host does not wait,
// because its work is already being done.
//
// Output:
//
//	alpha sweeps
//	beta skips: the lock is held
//	alpha is done
//	beta sweeps
//	beta is done
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
	alpha, beta := store.Client(), store.Client()

	err := sweep(ctx, alpha, "alpha", func(context.Context) error {
		// While alpha is at it, the timer of beta goes off.
		return sweep(ctx, beta, "beta", files)
	})
	if err != nil {
		return err
	}
	return sweep(ctx, beta, "beta", files)
}

// sweep runs work unless it is running elsewhere.
func sweep(ctx context.Context, client *leasehold.Client, host string, work func(context.Context) error) (err error) {
	lease, err := client.Mutex("skip/sweep").TryLock(ctx)
	if errors.Is(err, leasehold.ErrHeld) {
		fmt.Println(host, "skips: the lock is held")
		return nil
	}
	if err != nil {
		return err // the store did not answer: that is not the same
	}
	defer func() { err = errors.Join(err, lease.Release()) }()

	fmt.Println(host, "sweeps")
	if err := work(lease.Context()); err != nil {
		return err
	}
	fmt.Println(host, "is done")
	return nil
}

// files would remove old files, and stop when ctx ends.
func files(ctx context.Context) error { return context.Cause(ctx) }
