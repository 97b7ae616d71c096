package leaseholdgocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	leaseholdgocron "github.com/leasehold-go/leasehold/integrations/gocron"
)

// Two schedulers have the same job. One of them runs it.
func ExampleLocker() {
	store := memdriver.New() // of two hosts: a server
	ran := make(chan string, 2)
	skipped := make(chan error, 2)
	for _, host := range []string{"alpha", "beta"} {
		client, _ := leasehold.New(store)
		defer client.Close()
		locker := leaseholdgocron.NewLocker(client, leasehold.WithMinHold(30*time.Second))
		scheduler, _ := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		defer scheduler.Shutdown()
		work := func(ctx context.Context, lease *leasehold.Lease) error {
			ran <- host
			return ctx.Err()
		}
		_, _ = scheduler.NewJob(
			gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			locker.Task("nightly", work),
			gocron.WithName("nightly"),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })),
		)
		scheduler.Start()
	}
	<-ran
	<-skipped
	fmt.Println("one ran, one skipped;", len(ran), "more ran")
	// Output: one ran, one skipped; 0 more ran
}

// One of several schedulers runs all jobs. Its successor begins when it has closed.
func ExampleElector() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	elector := leaseholdgocron.NewElector(client, "scheduler", "10.0.0.1:8080")
	scheduler, _ := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	ran := make(chan bool)
	_, _ = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), elector.Task(func(ctx context.Context, lease *leasehold.Lease) error {
		select {
		case ran <- lease.Token() > 0:
		case <-ctx.Done():
		}
		return nil
	}))
	scheduler.Start()
	fmt.Println("ran under a token:", <-ran)
	_ = scheduler.Shutdown() // first
	_ = elector.Close()      // then the next scheduler leads
	// Output: ran under a token: true
}
