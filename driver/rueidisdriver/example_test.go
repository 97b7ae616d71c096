package rueidisdriver_test

import (
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
)

func ExampleNew() {
	store, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
}

// On a cluster whose primaries have one replica each, a lock is taken only when its replica
// has it.
func ExampleWithReplicas() {
	nodes := rueidis.ClientOption{InitAddress: []string{"n1:6379", "n2:6379", "n3:6379"}}
	store, err := rueidisdriver.New(nodes, rueidisdriver.WithReplicas(1, 200*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
}

func ExampleOpen() {
	store, err := rueidisdriver.Open("redis+cluster://n1,n2,n3?prefix=app:&timeout=500ms")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
}
