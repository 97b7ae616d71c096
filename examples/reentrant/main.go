// Reentrant takes a lock that the caller already holds: a function that locks an
// order may call another function that locks it too. The context identifies the
// caller, or an owner does so across goroutines and processes.
//
// Output:
//
//	inner call enters by its context, with the same token: true
//	a goroutine without the context is a stranger: true
//	worker-7 enters twice by its name, with the same token: true
//	after one release it is still held: true
//	after the last it is free: true
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
	return errors.Join(byContext(ctx, client), byOwner(ctx, client))
}

func byContext(ctx context.Context, client *leasehold.Client) (err error) {
	order := client.Mutex("reentrant/order")
	outer, err := order.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outer.Release()) }()

	// The callee gets the lease's context and locks as if it were alone.
	inner, err := order.Lock(outer.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inner.Release()) }()
	fmt.Println("inner call enters by its context, with the same token:", inner.Token() == outer.Token())

	_, err = order.TryLock(ctx)
	fmt.Println("a goroutine without the context is a stranger:", errors.Is(err, leasehold.ErrHeld))
	return nil
}

func byOwner(ctx context.Context, client *leasehold.Client) error {
	// The owner must be unique: all callers with this owner share the lock.
	mine := client.Mutex("reentrant/batch", leasehold.WithReentrantOwner("worker-7"))
	first, err := mine.Lock(ctx)
	if err != nil {
		return err
	}
	second, err := mine.Lock(ctx)
	if err != nil {
		return errors.Join(err, first.Release())
	}
	fmt.Println("worker-7 enters twice by its name, with the same token:", first.Token() == second.Token())

	stranger := client.Mutex("reentrant/batch")
	if err := first.Release(); err != nil {
		return err
	}
	_, err = stranger.TryLock(ctx)
	fmt.Println("after one release it is still held:", errors.Is(err, leasehold.ErrHeld))
	if err := second.Release(); err != nil {
		return err
	}
	lease, err := stranger.TryLock(ctx)
	fmt.Println("after the last it is free:", err == nil)
	if err != nil {
		return err
	}
	return lease.Release()
}
