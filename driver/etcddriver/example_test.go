package etcddriver_test

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/etcddriver"
)

// A program that has a client of etcd keeps its locks there. ServerOfExamples is the address of
// the test's etcd.
func ExampleNew() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{etcddriver.ServerOfExamples()}, MaxUnaryRetries: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer etcd.Close()
	store, err := etcddriver.New(etcd, etcddriver.WithPrefix("shop/locks/"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // and the store
	lease, err := client.Mutex("orders/42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.State(), lease.Release())
	// Output: held <nil>
}

// The second client waits in the queue until the first has released.
func ExampleOpen() {
	ctx := context.Background()
	var clients [2]*leasehold.Client
	for i := range clients {
		store, err := etcddriver.Open("etcd://" + etcddriver.ServerOfExamples() + "/example?timeout=3s")
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
