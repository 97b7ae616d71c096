// Watchdog does work that takes longer than the lease's time to live. The lease
// is renewed in the background as long as its holder lives, so a short TTL is
// no reason to hurry. If it is lost, here because an operator breaks it, its context
// ends and the work stops.
//
// Output:
//
//	1.5 times the TTL later: still held
//	beta is refused
//	an operator breaks the lease
//	the work stops: lease lost: lease broken by force: alpha is being replaced
//	Do returns ErrLost: true
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
)

const (
	key = "watchdog/report"
	ttl = 6 * time.Second
)

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	alpha := store.Client(leasehold.WithTTL(ttl))
	beta := store.Client()

	err := leasehold.Do(ctx, alpha.Mutex(key), func(ctx context.Context) error {
		if err := work(ctx, ttl*3/2); err != nil {
			return err
		}
		fmt.Println("1.5 times the TTL later: still held")
		if _, err := beta.Mutex(key).TryLock(ctx); !errors.Is(err, leasehold.ErrHeld) {
			return fmt.Errorf("two holders: %w", err)
		}
		fmt.Println("beta is refused")
		if err := breakIt(ctx, beta); err != nil {
			return err
		}
		err := work(ctx, time.Hour)
		fmt.Println("the work stops:", err)
		return err
	})
	fmt.Println("Do returns ErrLost:", errors.Is(err, leasehold.ErrLost))
	return nil
}

// work takes some time, and looks at its context all along.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// breakIt ends the lease of the lock's holder, as `leasehold break` does.
func breakIt(ctx context.Context, client *leasehold.Client) error {
	fmt.Println("an operator breaks the lease")
	picture, err := client.Inspect(ctx, key)
	if err != nil {
		return err
	}
	for _, holder := range picture.Holders {
		err = errors.Join(err, client.Break(ctx, key, holder.ID, "alpha is being replaced"))
	}
	return err
}
