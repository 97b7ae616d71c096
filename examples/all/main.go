// All moves money between two accounts, each with a lock of its own, in both
// directions at once. A transfer takes both locks or neither, and all transfers use
// one order, so that no two transfers wait for each other.
//
// Output:
//
//	20 transfers later: anna 100, bert 100
//	one account is in use: no transfer, and the other one stays free
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

func main() { example.Main(run) }

// account is a row of a table. Only the holder of its lock may change it.
type account struct {
	key     string
	balance atomic.Int64
}

func run(ctx context.Context, store *example.Store) error {
	alpha, beta := store.Client(), store.Client()
	anna, bert := &account{key: "all/anna"}, &account{key: "all/bert"}
	anna.balance.Store(100)
	bert.balance.Store(100)

	there := make(chan error, 1)
	go func() { there <- transfers(ctx, alpha, anna, bert) }()
	if err := errors.Join(transfers(ctx, beta, bert, anna), <-there); err != nil {
		return err
	}
	fmt.Printf("20 transfers later: anna %d, bert %d\n", anna.balance.Load(), bert.balance.Load())

	return leasehold.Do(ctx, alpha.Mutex(bert.key), func(context.Context) error {
		_, err := leasehold.All(beta.Mutex(anna.key), beta.Mutex(bert.key)).TryLock(ctx)
		if !errors.Is(err, leasehold.ErrHeld) {
			return fmt.Errorf("bert should have been in use: %w", err)
		}
		free, err := beta.Mutex(anna.key).TryLock(ctx)
		if err != nil {
			return err
		}
		fmt.Println("one account is in use: no transfer, and the other one stays free")
		return free.Release()
	})
}

// transfers moves 1 ten times.
func transfers(ctx context.Context, client *leasehold.Client, from, to *account) error {
	both := leasehold.All(client.Mutex(from.key), client.Mutex(to.key))
	for range 10 {
		err := leasehold.Do(ctx, both, func(context.Context) error {
			// Read, compute, write: without both locks money would be lost.
			a, b := from.balance.Load(), to.balance.Load()
			from.balance.Store(a - 1)
			to.balance.Store(b + 1)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
