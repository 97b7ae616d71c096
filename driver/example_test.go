package driver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// A store that can set a key if it is absent, renew it if it is ours and delete
// it if it is ours serves mutexes. The table here lives in memory; one in a
// database has the same three methods.
func ExampleFromBasic() {
	ctx := context.Background()
	d := driver.FromBasic(new(table))
	defer func() { _ = d.Close() }()

	request := driver.Request{Key: "orders/42", ID: "lease-1", TTL: 30 * time.Second}
	first, _ := d.Acquire(ctx, request)
	again, _ := d.Acquire(ctx, request) // as after a lost reply
	request.ID = "lease-2"
	other, _ := d.Acquire(ctx, request)
	fmt.Println(first.State == driver.Granted, again.State == driver.Granted, other.State == driver.Busy)

	_, _ = d.Release(ctx, driver.Ref{Key: "orders/42", ID: "lease-1"})
	other, _ = d.Acquire(ctx, request)
	fmt.Println(other.State == driver.Granted)
	// Output:
	// true true true
	// true
}

// Supports finds a missing feature before the store is asked.
func ExampleSupports() {
	d := driver.FromBasic(new(table))
	err := driver.Supports(d, driver.Request{Mode: driver.Shared, Limit: 4})
	fmt.Println(err, errors.Is(err, errors.ErrUnsupported))
	// Output: the store has no shared locks: unsupported operation true
}

// Before you rely on a store, ask it for the settings that make its locks unsafe, if it can
// check them.
func ExampleChecker() {
	var d driver.Driver = sick{driver.FromBasic(new(table))}
	checker, ok := d.(driver.Checker)
	if !ok {
		return
	}
	report, err := checker.Check(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings {
		fmt.Printf("%v: %s: %s: %s; %s\n", f.Severity, f.Check, f.What, f.Why, f.Remedy)
	}
	fmt.Println(report.Worst() == driver.Unsafe)
	// Output:
	// unsafe: eviction: maxmemory-policy is allkeys-lru: locks that are held are thrown away; set it to noeviction
	// true
}

// sick is a store with a fault.
type sick struct{ driver.Driver }

func (sick) Check(context.Context) (driver.Report, error) {
	var r driver.Report
	r.Add(driver.Unsafe, "eviction", "maxmemory-policy is allkeys-lru", "locks that are held are thrown away", "set it to noeviction")
	return r, nil
}

// counted counts the requests to a store. It embeds a Wrapper, and not a Driver,
// so that As still finds the optional interfaces of the store.
type counted struct {
	driver.Wrapper
	asked atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	c.asked.Add(1)
	return c.Driver.Acquire(ctx, req)
}

func ExampleWrapper() {
	ctx := context.Background()
	store := &counted{Wrapper: driver.Wrapper{Driver: memdriver.New()}}
	client, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	lease, err := client.Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	snapshot, err := client.Inspect(ctx, "orders/42")
	fmt.Println(store.asked.Load(), len(snapshot.Holders), err)
	_ = lease.Release()
	// Output: 1 1 <nil>
}

// As finds the optional interfaces of a driver, also through wrappers.
func ExampleAs() {
	store := &counted{Wrapper: driver.Wrapper{Driver: memdriver.New()}}
	_, direct := driver.Driver(store).(driver.Breaker)
	_, inside := driver.As[driver.Breaker](store)
	fmt.Println(direct, inside)
	// Output: false true
}
