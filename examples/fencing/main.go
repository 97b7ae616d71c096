// Fencing protects a table from a holder that does not notice the end of its
// lease. Alpha reads a balance, stalls for longer than its lease lasts, and
// writes a result that it computed from the old value. No lock can stop it. The table
// can: it stores the greatest token so far and refuses smaller tokens.
//
// Output:
//
//	alpha reads 100, and stalls
//	beta reads 100, with a greater token: true
//	alpha writes 90: refused, a later holder has been here
//	beta writes 50
//	alpha's release returns ErrLost: true
//	the balance is 50
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/examples/internal/example"
	"github.com/leasehold-go/leasehold/fence"
)

func main() { example.Main(run) }

func run(ctx context.Context, store *example.Store) error {
	bank, err := newBank(ctx)
	if err != nil {
		return err
	}
	defer bank.Close()
	alpha := store.Client(leasehold.WithTTL(200*time.Millisecond), leasehold.WithoutRenewal())
	beta := store.Client()

	stale, err := alpha.Mutex("fencing/account").Lock(ctx)
	if err != nil {
		return err
	}
	balance, err := bank.read(ctx, stale)
	if err != nil {
		return err
	}
	fmt.Printf("alpha reads %d, and stalls\n", balance)

	lease, err := beta.Mutex("fencing/account").Lock(ctx) // waits until alpha's lease is over
	if err != nil {
		return err
	}
	seen, err := bank.read(ctx, lease)
	if err != nil {
		return err
	}
	fmt.Printf("beta reads %d, with a greater token: %t\n", seen, lease.Token() > stale.Token())

	// Alpha wakes before beta has written. Beta has announced its token by
	// reading, or else this write would pass, and beta's would undo it.
	if err := bank.write(ctx, stale, balance-10); !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("a stale write was not refused: %w", err)
	}
	fmt.Printf("alpha writes %d: refused, a later holder has been here\n", balance-10)
	if err := bank.write(ctx, lease, seen-50); err != nil {
		return err
	}
	fmt.Println("beta writes", seen-50)
	fmt.Println("alpha's release returns ErrLost:", errors.Is(stale.Release(), leasehold.ErrLost))
	if balance, err = bank.read(ctx, lease); err != nil {
		return err
	}
	fmt.Println("the balance is", balance)
	return lease.Release()
}
