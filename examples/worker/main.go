// Worker handles the jobs of a queue, such as river's or asynq's, and never two jobs of
// one account at the same time: if the account is busy, the queue offers the job again
// later. The lock is held until the handler has returned, even if the queue ends the
// context of the job before.
//
// Output:
//
//	alpha works for account 7
//	beta finds account 7 busy: later
//	the queue shuts down
//	beta finds account 7 busy: later
//	alpha is done
//	beta works for account 7
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

// errLater has the queue offer a job again: with river a handler returns
// river.JobSnooze, with asynq any error.
var errLater = errors.New("later")

func run(ctx context.Context, store *example.Store) error {
	alpha, beta := store.Client(), store.Client()

	job, shutdown := context.WithCancel(ctx)
	defer shutdown()
	err := handle(job, alpha, "alpha", "7", func(context.Context) error {
		offer(ctx, beta)
		fmt.Println("the queue shuts down")
		shutdown()
		offer(ctx, beta)
		return nil
	})
	if err != nil {
		return err
	}
	return handle(ctx, beta, "beta", "7", func(context.Context) error { return nil })
}

// offer has beta try a job of the same account.
func offer(ctx context.Context, beta *leasehold.Client) {
	err := handle(ctx, beta, "beta", "7", func(context.Context) error { return nil })
	if errors.Is(err, errLater) {
		fmt.Println("beta finds account 7 busy: later")
	}
}

// handle does a job of an account, unless the account is busy. The context of work ends
// with the lock, so that its calls stop, or are refused by their token.
func handle(ctx context.Context, client *leasehold.Client, host, account string, work func(context.Context) error) error {
	ran, err := leasehold.TryDo(context.WithoutCancel(ctx), client.Mutex("worker/account/"+account), func(ctx context.Context) error {
		fmt.Println(host, "works for account", account)
		if err := work(ctx); err != nil {
			return err
		}
		fmt.Println(host, "is done")
		return nil
	})
	if err == nil && !ran {
		return errLater
	}
	return err
}
