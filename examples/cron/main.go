// Cron runs a nightly job once, on two hosts that both have it in their
// crontab. The job is shorter than their clocks differ, so that excluding each
// other is not enough: the late host would find the lock free, and run the job
// again. WithMinHold keeps the lock closed for a while after the job is done.
//
// Output:
//
//	night 1: alpha runs the job
//	night 1: beta skips it
//	night 2: beta runs the job
//	night 2: alpha skips it
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

// A real one is longer than clocks ever differ and shorter than the time
// between two runs: a minute for a nightly job.
const atLeast = 3 * time.Second

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	alpha, beta := store.Client(), store.Client()

	err := errors.Join(
		tick(ctx, alpha, "night 1: alpha"),
		tick(ctx, beta, "night 1: beta"), // its clock is a little late
	)
	if err != nil {
		return err
	}
	time.Sleep(atLeast + 100*time.Millisecond) // the day
	return errors.Join(
		tick(ctx, beta, "night 2: beta"),
		tick(ctx, alpha, "night 2: alpha"),
	)
}

// tick runs on every host when cron starts the job.
func tick(ctx context.Context, client *leasehold.Client, host string) error {
	lease, err := client.Mutex("cron/nightly", leasehold.WithMinHold(atLeast)).TryLock(ctx)
	if errors.Is(err, leasehold.ErrHeld) {
		fmt.Println(host, "skips it")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Println(host, "runs the job")
	return lease.Release() // does not wait: the store keeps the lock closed
}
