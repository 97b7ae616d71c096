package mysqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/mysqldriver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
)

// database is the address of the test's server, and pool leads there.
var (
	database string
	pool     *sql.DB
)

func TestMain(m *testing.M) {
	mysqltest.Main(m, func(url string, db *sql.DB) { database, pool = url, db })
}

// Two programs on one database: the second waits in the queue until the first has released.
func ExampleOpen() {
	ctx := context.Background()
	var clients [2]*leasehold.Client
	for i := range clients {
		store, err := mysqldriver.Open(database + "create=true") // mysql://app:secret@db1/app?create=true
		if err != nil {
			fmt.Println(err)
			return
		}
		if clients[i], err = leasehold.New(store); err != nil {
			fmt.Println(err)
			return
		}
		defer clients[i].Close() // and the store
	}
	first, err := clients[0].Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	go first.Release()
	second, err := clients[1].Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(second.Token() > first.Token(), second.Release())
	// Output: true <nil>
}

// A program keeps its locks in the database that it already has, by its own pool.
func ExampleNew() {
	store, err := mysqldriver.New(pool, mysqldriver.WithCreate(), mysqldriver.WithTable("jobs"),
		mysqldriver.WithTimeout(5*time.Second), mysqldriver.WithPoll(50*time.Millisecond))
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
	lease, err := client.Mutex("nightly").TryLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Key(), lease.Release())
	// Output: nightly <nil>
}

// A migration creates the tables.
func ExampleSQL() {
	statements := mysqldriver.SQL(mysqldriver.WithTable("locks"))
	fmt.Println(strings.Count(statements, "CREATE TABLE IF NOT EXISTS"))
	// Output: 2
}

func ExampleDriver_Check() {
	store, err := mysqldriver.Open(database + "create=true")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	report, err := store.Check(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		if f.Check == "role" {
			fmt.Println(f.Severity, f.What)
		}
	}
	// Output: ok is a primary
}
