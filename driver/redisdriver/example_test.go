package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
)

// An application uses the Redis client that it already has.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store, err := redisdriver.New(client, redisdriver.WithPrefix("app:"))
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close() // and not client
}

// Behind sentinels, a lock is taken only when both replicas have it, so it is still held after
// either replica takes over.
func ExampleWithReplicas() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "mymaster", SentinelAddrs: []string{"s1:26379", "s2:26379", "s3:26379"},
	})
	store, err := redisdriver.New(client, redisdriver.WithReplicas(2, 200*time.Millisecond))
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

	lease, err := locks.Mutex("orders/42").Lock(context.Background())
	if errors.Is(err, leasehold.ErrNotReplicated) {
		fmt.Println("a replica is away; nothing was locked")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
}

// A URL can state all options.
func ExampleOpen() {
	store, err := redisdriver.Open("rediss+sentinel://user:secret@s1,s2,s3/?master=mymaster&replicas=2&ca=/etc/ssl/redis-ca.pem")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
}
