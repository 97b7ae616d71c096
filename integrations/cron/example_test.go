package leaseholdcron_test

import (
	"context"
	"fmt"

	"github.com/robfig/cron/v3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	leaseholdcron "github.com/leasehold-go/leasehold/integrations/cron"
)

// Two hosts have the same job. The later host skips the run.
func ExampleOneHost() {
	store := memdriver.New() // of two hosts: a server
	for _, host := range []string{"alpha", "beta"} {
		client, _ := leasehold.New(store)
		defer client.Close()
		sweep := cron.FuncJob(func() { fmt.Println(host, "sweeps") })
		hosts := cron.New()
		_, _ = hosts.AddJob("30 2 * * *", cron.NewChain(
			cron.Recover(cron.DiscardLogger),
			leaseholdcron.OneHost(client, "sweep", cron.DiscardLogger),
		).Then(sweep))
		hosts.Entries()[0].WrappedJob.Run() // it is half past two
	}
	// Output: alpha sweeps
}

// The context of the job ends if its lock is lost, and its token fences the writes.
func ExampleJob() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	job := leaseholdcron.Job(client, "sweep", cron.DefaultLogger, func(ctx context.Context, lease *leasehold.Lease) error {
		fmt.Println("swept under a token:", lease.Token() > 0)
		return ctx.Err()
	})
	hosts := cron.New()
	_, _ = hosts.AddJob("30 2 * * *", job)
	hosts.Entries()[0].WrappedJob.Run() // it is half past two
	// Output: swept under a token: true
}
