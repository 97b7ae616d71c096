// Retry asks for a lock again and again, with growing pauses, instead of
// waiting in its queue: for a caller that would rather give up than stand in
// line. One sees the pauses, a caller that gives up, and one that does not.
//
// Output:
//
//	pauses before jitter: 20ms 40ms 80ms 100ms 100ms
//	alpha holds the lock
//	beta gives up: 4 attempts
//	alpha is about to leave
//	beta holds the lock
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

const key = "retry/import"

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	alpha, beta := store.Client(), store.Client()

	// A strategy is a value: any number of locks and goroutines may share it.
	patient := leasehold.Backoff{Base: 20 * time.Millisecond, Factor: 2, Cap: 100 * time.Millisecond, Jitter: 0.5}
	fmt.Print("pauses before jitter:")
	for attempt := 1; attempt <= 5; attempt++ {
		fmt.Print(" ", patient.Delay(attempt))
	}
	fmt.Println()

	lease, err := alpha.Mutex(key).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("alpha holds the lock")

	hasty := patient
	hasty.Attempts = 4
	err = leasehold.Do(ctx, beta.Mutex(key, leasehold.WithRetry(hasty)), work)
	var held *leasehold.HeldError
	if !errors.As(err, &held) {
		return fmt.Errorf("beta should have been refused: %w", err)
	}
	fmt.Println("beta gives up:", held.Cause)

	fmt.Println("alpha is about to leave")
	left := make(chan error, 1)
	time.AfterFunc(150*time.Millisecond, func() { left <- lease.Release() })
	err = leasehold.Do(ctx, beta.Mutex(key, leasehold.WithRetry(patient)), work)
	return errors.Join(err, <-left)
}

func work(context.Context) error {
	fmt.Println("beta holds the lock")
	return nil
}
