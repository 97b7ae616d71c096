// Fair serves waiters in the order of their arrival at the store, from any machine.
// A waiter that asks more often, or is closer to the store, has no advantage.
//
// Output:
//
//	customer 1 waits
//	customer 2 waits
//	customer 3 waits
//	customer 4 waits
//	the till opens
//	customer 1 is served
//	customer 2 is served
//	customer 3 is served
//	customer 4 is served
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

const key = "fair/till"

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	cashier := store.Client()
	closed, err := cashier.Mutex(key).Lock(ctx)
	if err != nil {
		return err
	}

	var served []func() error
	for n := 1; n <= 4; n++ {
		client := store.Client() // each on a machine of its own
		served = append(served, example.Queue(ctx, func(ctx context.Context) error {
			return leasehold.Do(ctx, client.Mutex(key), func(context.Context) error {
				fmt.Println("customer", n, "is served")
				return nil
			})
		}))
		fmt.Println("customer", n, "waits")
	}

	fmt.Println("the till opens")
	err = closed.Release()
	for _, wait := range served {
		err = errors.Join(err, wait())
	}
	return err
}
