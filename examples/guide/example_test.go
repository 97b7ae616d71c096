package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	_ "modernc.org/sqlite"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/examples/guide"
	"github.com/leasehold-go/leasehold/fence"
)

// newClient returns a client of a store of its own.
func newClient() *leasehold.Client {
	client, err := leasehold.New(memdriver.New())
	if err != nil {
		panic(err)
	}
	return client
}

// newDB returns a database in memory with a fence and the given schema.
func newDB(schema string) *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err == nil {
		db.SetMaxOpenConns(1) // each connection would have a memory of its own
		err = fence.SQL{}.Create(context.Background(), db)
	}
	if err == nil {
		_, err = db.Exec(schema)
	}
	if err != nil {
		panic(err)
	}
	return db
}

// crowd calls f five times at once and returns the errors.
func crowd(f func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, 5)
	for i := range errs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

type gateway struct{ payments int }

func (g *gateway) Pay(context.Context, string, int) error {
	g.payments++ // under the lock
	return nil
}

func ExampleCharge() {
	client := newClient()
	defer client.Close()
	db := newDB(`CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER, state TEXT); INSERT INTO orders VALUES ('42', 1999, 'open')`)
	defer db.Close()
	bank := &gateway{}

	err := crowd(func() error {
		return guide.Charge(context.Background(), client, db, bank, "42")
	})
	fmt.Println("payments:", bank.payments, err)
	// Output: payments: 1 <nil>
}

func ExampleNightly() {
	client := newClient()
	defer client.Close()
	report := func(context.Context) error { return nil }

	ran, err := guide.Nightly(context.Background(), client, report)
	fmt.Println("first host:", ran, err)
	ran, err = guide.Nightly(context.Background(), client, report)
	fmt.Println("a host with a late clock:", ran, err)
	// Output:
	// first host: true <nil>
	// a host with a late clock: false <nil>
}

type cache struct{ sync.Map }

func (c *cache) Value(key string) (string, bool) {
	value, fresh := c.Load(key)
	text, _ := value.(string)
	return text, fresh
}

func (c *cache) Put(key, value string) { c.Store(key, value) }

func ExampleRefill() {
	client := newClient()
	values, loads := &cache{}, 0
	refill := func() error {
		_, err := guide.Refill(context.Background(), client, values, "rates", func(context.Context) (string, error) {
			loads++ // under the lock
			return "1.17", nil
		})
		return err
	}
	err := crowd(refill)
	fmt.Println("loads:", loads, err)

	client.Close() // as if the store could not be reached
	values.Clear()
	err = refill()
	fmt.Println("loads:", loads, err)
	// Output:
	// loads: 1 <nil>
	// loads: 2 <nil>
}

func ExampleTake() {
	db := newDB(`CREATE TABLE stock (sku TEXT PRIMARY KEY, n INTEGER); INSERT INTO stock VALUES ('chair', 3)`)
	defer db.Close()
	fmt.Println(guide.Take(context.Background(), db, "chair", 2))
	fmt.Println(guide.Take(context.Background(), db, "chair", 2))
	// Output:
	// <nil>
	// sold out
}

// warehouse is used under locks of its articles.
type warehouse map[string]int

func (w warehouse) Stock(_ context.Context, sku string) (int, error) { return w[sku], nil }

func (w warehouse) Reserve(_ context.Context, sku string, _ int64) error {
	w[sku]--
	return nil
}

func ExampleBundle() {
	client := newClient()
	defer client.Close()
	shop := warehouse{"chair": 2, "table": 1}
	fmt.Println(guide.Bundle(context.Background(), client, shop, "table", "chair"))
	fmt.Println(guide.Bundle(context.Background(), client, shop, "table", "chair"))
	fmt.Println(shop)
	// Output:
	// <nil>
	// table: sold out
	// map[chair:1 table:0]
}

func ExampleMigrate() {
	client := newClient()
	defer client.Close()
	db := newDB(`CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (0)`)
	defer db.Close()
	steps := []string{
		`CREATE TABLE users (id INTEGER PRIMARY KEY)`,
		`ALTER TABLE users ADD COLUMN name TEXT`,
	}
	err := crowd(func() error { return guide.Migrate(context.Background(), client, db, steps) })
	var version int
	_ = db.QueryRow(`SELECT version FROM schema_version`).Scan(&version)
	fmt.Println("version", version, err)

	// After a downgrade, an instance of the version before changes the schema no further.
	fmt.Println(guide.Migrate(context.Background(), client, db, steps[:1]))
	// Output:
	// version 2 <nil>
	// <nil>
}
