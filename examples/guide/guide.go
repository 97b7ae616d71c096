// Package guide is the code of docs/guide.md: five jobs for which people reach for
// a lock, and how each is done so that it is right, or fast, and survives a crash.
package guide

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/fence"
)

// fences is a table next to the data, with the greatest token seen.
var fences fence.SQL

// Gateway is a foreign payment service. It does not repeat a payment with a key that it has
// seen before.
type Gateway interface {
	Pay(ctx context.Context, idempotencyKey string, cents int) error
}

// Charge takes the money for an order once, however many workers try.
func Charge(ctx context.Context, client *leasehold.Client, db *sql.DB, gateway Gateway, order string) error {
	return leasehold.Do(ctx, client.Mutex("orders/"+order), func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		fenced := func(f func(*sql.Tx) error) error {
			return fences.Do(ctx, db, "orders/"+order, fence.Of(lease), f)
		}
		var cents int
		var state string
		err := fenced(func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT cents, state FROM orders WHERE id = ?`, order).Scan(&cents, &state)
		})
		if err != nil || state == "paid" {
			return err
		}
		if err := gateway.Pay(ctx, "order-"+order, cents); err != nil {
			return err // unknown, perhaps: the next attempt has the same key
		}
		return fenced(func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = ?`, order)
			return err
		})
	})
}

// Nightly runs job on the first host that comes. Hosts that come while it runs, or
// within the minute after it began, skip it.
func Nightly(ctx context.Context, client *leasehold.Client, job func(context.Context) error) (ran bool, err error) {
	lock := client.Mutex("nightly-report",
		leasehold.WithMinHold(time.Minute), // longer than the hosts' clocks differ
		leasehold.WithMaxHold(time.Hour),   // a job that hangs does not block tomorrow's
	)
	return leasehold.TryDo(ctx, lock, job)
}

// Cache keeps the values. Value reports whether a value is fresh.
type Cache interface {
	Value(key string) (value string, fresh bool)
	Put(key, value string)
}

// Refill returns a fresh value. One process loads it, and the rest waits for it. Two loads do
// no harm, so no failure of the lock is an error.
func Refill(ctx context.Context, client *leasehold.Client, cache Cache, key string, load func(context.Context) (string, error)) (string, error) {
	if value, fresh := cache.Value(key); fresh {
		return value, nil
	}
	lock := client.Mutex("cache/"+key, leasehold.WithTTL(10*time.Second), leasehold.WithMaxWait(2*time.Second))
	if lease, err := lock.Lock(ctx); err == nil {
		defer func() { _ = lease.Release() }()
	}
	if value, fresh := cache.Value(key); fresh {
		return value, nil // loaded while we waited
	}
	value, err := load(ctx)
	if err == nil {
		cache.Put(key, value)
	}
	return value, err
}

// ErrSoldOut means that too few articles are left.
var ErrSoldOut = errors.New("sold out")

// Take takes n of one article. One statement of the database does it: a lock is not needed.
func Take(ctx context.Context, db *sql.DB, sku string, n int) error {
	result, err := db.ExecContext(ctx, `UPDATE stock SET n = n - ? WHERE sku = ? AND n >= ?`, n, sku, n)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, ErrSoldOut)
	}
	return nil
}

// Warehouse is a foreign system without transactions.
type Warehouse interface {
	Stock(ctx context.Context, sku string) (int, error)
	Reserve(ctx context.Context, sku string, token int64) error
}

// Bundle reserves one of each article, or no article if one of them is sold out. The articles
// are locked together, in an order that is the same for all callers, so that two bundles never
// wait for each other. A reservation that fails leaves the reservations before it, since the
// warehouse has no transactions.
func Bundle(ctx context.Context, client *leasehold.Client, shop Warehouse, skus ...string) (err error) {
	var locks []leasehold.Part
	for _, sku := range skus {
		locks = append(locks, client.Mutex("stock/"+sku))
	}
	lease, err := leasehold.All(locks...).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release()) }() // ErrLost: not protected to the end
	ctx = lease.Context()                                      // ends as soon as any of the locks is lost
	for _, sku := range skus {
		if n, err := shop.Stock(ctx, sku); err != nil {
			return err
		} else if n == 0 {
			return fmt.Errorf("%s: %w", sku, ErrSoldOut)
		}
	}
	for _, part := range lease.Parts() { // one for each article, with a token of its own
		if err := shop.Reserve(ctx, strings.TrimPrefix(part.Key(), "stock/"), part.Token()); err != nil {
			return err
		}
	}
	return nil
}

// Migrate brings the schema of a database to the last step. Every instance of a
// service calls it when it starts; one works, and the rest waits until it is done.
// It is for databases that undo a step with its transaction, as PostgreSQL and SQLite.
func Migrate(ctx context.Context, client *leasehold.Client, db *sql.DB, steps []string) error {
	lock := client.Mutex("schema", leasehold.WithMaxWait(10*time.Minute))
	return leasehold.Do(ctx, lock, func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		for done := false; !done; {
			err := fences.Do(ctx, db, "schema", fence.Of(lease), func(tx *sql.Tx) error {
				var version int
				if err := tx.QueryRowContext(ctx, `SELECT version FROM schema_version`).Scan(&version); err != nil {
					return err
				}
				if done = version >= len(steps); done { // a later version of the program may have gone further
					return nil
				}
				if _, err := tx.ExecContext(ctx, steps[version]); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, `UPDATE schema_version SET version = version + 1`)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
