package natsdriver_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/natsdriver"
)

// server is the URL of the server of the tests.
var server = natsdriver.Server

// A program keeps its locks in the cluster that it is connected to anyway. With three servers the
// bucket has three replicas: WithCreate(3).
func ExampleNew() {
	nc, err := nats.Connect(server())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	store, err := natsdriver.New(nc, natsdriver.WithBucket("example"), natsdriver.WithCreate(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // closes the store, too, but not the connection
	lease, err := client.Mutex("orders/42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Key(), lease.State())
	fmt.Println(lease.Release())
	// Output:
	// orders/42 held
	// <nil>
}

// The store has a connection of its own. A waiter gets the lock when it is released.
func ExampleOpen() {
	var clients [2]*leasehold.Client
	for i := range clients {
		store, err := natsdriver.Open(server() + "/example?create=true") // nats://user:password@n1,n2,n3/example?create=true&replicas=3
		if err != nil {
			fmt.Println(err)
			return
		}
		if clients[i], err = leasehold.New(store); err != nil {
			fmt.Println(err)
			return
		}
		defer clients[i].Close()
	}
	first, err := clients[0].Mutex("reports").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	go first.Release()
	second, err := clients[1].Mutex("reports").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(second.Token() > first.Token(), second.Release())
	// Output: true <nil>
}

// Settings that make locks unsafe are found by Check, which `leasehold doctor` calls.
func ExampleDriver_Check() {
	store, err := natsdriver.Open(server() + "/example?create=true")
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
	unsafe := 0
	for _, f := range report.Findings {
		if f.Severity == driver.Unsafe {
			unsafe++
		}
	}
	fmt.Println(unsafe, "settings make locks unsafe")
	// Output: 0 settings make locks unsafe
}
