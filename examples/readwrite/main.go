// Readwrite shares a catalogue: many readers use it at a time, or one writer. A later
// reader does not overtake a waiting writer, so that the writer gets its turn. The
// writer can go on as a reader, without another writer in between.
//
// Output:
//
//	3 readers at once
//	the writer waits
//	a later reader does not overtake it
//	the readers leave
//	the writer is alone: version 2
//	it goes on as one of two readers: both see version 2
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

func run(ctx context.Context, store *example.Store) error {
	client := store.Client()
	// By default all are served in the order of arrival. WithPolicy
	// sets another one: writers first, or readers first.
	catalog := client.RWMutex("readwrite/catalog")
	var version atomic.Int64
	version.Store(1)

	var readers []*leasehold.Lease
	for range 3 {
		lease, err := catalog.RLock(ctx)
		if err != nil {
			return err
		}
		readers = append(readers, lease)
	}
	fmt.Println(len(readers), "readers at once")

	written := example.Queue(ctx, func(ctx context.Context) error { return write(ctx, catalog, &version) })
	fmt.Println("the writer waits")

	if _, err := catalog.TryRLock(ctx); !errors.Is(err, leasehold.ErrHeld) {
		return fmt.Errorf("a reader passed the writer: %w", err)
	}
	fmt.Println("a later reader does not overtake it")

	fmt.Println("the readers leave")
	for _, lease := range readers {
		if err := lease.Release(); err != nil {
			return err
		}
	}
	return written()
}

func write(ctx context.Context, catalog *leasehold.RWMutex, version *atomic.Int64) (err error) {
	lease, err := catalog.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release()) }()
	fmt.Println("the writer is alone: version", version.Add(1))

	mine := version.Load()
	if err := lease.Downgrade(ctx); err != nil {
		return err
	}
	return leasehold.Do(ctx, catalog.RLocker(), func(context.Context) error {
		if version.Load() != mine {
			return errors.New("another writer slipped in")
		}
		fmt.Println("it goes on as one of two readers: both see version", mine)
		return nil
	})
}
