// Election chooses between two candidates that can run a scheduler. The first
// candidate leads and resigns, for example for an upgrade, and the second takes
// over. Every program can look up the leader and its address.
//
// Output:
//
//	the leader is alpha:8080
//	alpha resigns
//	the leader is beta:8080
//	alpha's term ended: resigned
//	beta's term ended: shut down
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

const key = "election/scheduler"

var errShutDown = errors.New("shut down")

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	first, second := store.Client(), store.Client()
	ctx, shutDown := context.WithCancelCause(ctx)
	defer shutDown(nil)

	alpha := first.Election(key, "alpha:8080")
	elected := make(chan struct{})
	told := sync.OnceFunc(func() { close(elected) }) // it may be elected again
	alphaEnded := make(chan error, 1)
	go func() {
		alphaEnded <- alpha.Lead(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
			told()
			return schedule(ctx, lease)
		})
	}()
	<-elected
	beta := second.Election(key, "beta:8080")
	betaEnded := example.Queue(ctx, func(ctx context.Context) error { return beta.Lead(ctx, schedule) })

	// Observe yields each new leader, and the zero Leader while there is no leader.
	for leader, err := range beta.Observe(ctx) {
		if err != nil {
			return err
		}
		if leader.ID == "" {
			continue
		}
		fmt.Println("the leader is", leader.Value)
		if leader.Value == "beta:8080" {
			break
		}
		fmt.Println("alpha resigns")
		alpha.Resign()
	}
	shutDown(errShutDown)

	if err := <-alphaEnded; !errors.Is(err, leasehold.ErrResigned) {
		return fmt.Errorf("alpha: %w", err)
	}
	fmt.Println("alpha's term ended: resigned")
	if err := betaEnded(); !errors.Is(err, errShutDown) {
		return fmt.Errorf("beta: %w", err)
	}
	fmt.Println("beta's term ended: shut down")
	return nil
}

// schedule is the leader's work. It stops when the term ends. Its writes should carry
// lease.Token(); see the fencing example.
func schedule(ctx context.Context, _ *leasehold.Lease) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
