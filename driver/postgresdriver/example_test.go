package postgresdriver_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
)

// A program keeps its locks in the database that it already has.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db1/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := postgresdriver.New(pool, postgresdriver.WithCreate())
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // closes the store, too, but not the pool
	lease, err := client.Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
}

// A deployment makes the table, so that the role of the program needs no right to make one.
func ExampleSQL() {
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, "postgres://admin@db1/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, postgresdriver.SQL(postgresdriver.WithTable("locks.leases"))); err != nil {
		fmt.Println(err)
	}
}

// A holder may be stopped between the lock and the write, but it cannot commit a late
// write: its transaction begins with a check of the lease, and no other holder gets the
// lock until the transaction has ended.
func ExamplePin() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db1/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	ship := func(lease *leasehold.Lease) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := postgresdriver.Pin(ctx, tx, lease); err != nil {
				return err // errors.Is(err, postgresdriver.ErrNotHeld): another holder has it
			}
			// However long this takes, no other holder ships the order before the commit.
			_, err := tx.Exec(ctx, `UPDATE orders SET state = 'shipped' WHERE id = 42`)
			return err
		})
	}
	_ = ship
}
