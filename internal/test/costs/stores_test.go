package costs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// redisClients open a store through each of the Redis clients.
var redisClients = map[string]func(tb testing.TB, s *redistest.Server) (driver.Driver, error){
	"go-redis": func(tb testing.TB, s *redistest.Server) (driver.Driver, error) {
		client := redis.NewClient(&redis.Options{Addr: s.Addr()})
		tb.Cleanup(func() { _ = client.Close() })
		return redisdriver.New(client)
	},
	"rueidis": func(_ testing.TB, s *redistest.Server) (driver.Driver, error) {
		return rueidisdriver.Open(s.URL())
	},
}

// eachRedis runs a test over every Redis client, one after the other.
func eachRedis(t *testing.T, test func(t *testing.T, s *redistest.Server, open func(opts ...leasehold.Option) *leasehold.Client)) {
	s := redistest.Start(t)
	for name, open := range redisClients {
		t.Run(name, func(t *testing.T) {
			s.Client().FlushAll(context.Background())
			test(t, s, func(opts ...leasehold.Option) *leasehold.Client {
				t.Helper()
				d, err := open(t, s)
				return newClient(t, d, err, opts...)
			})
		})
	}
}

func newClient(tb testing.TB, d driver.Driver, err error, opts ...leasehold.Option) *leasehold.Client {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	c, err := leasehold.New(d, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	pair(tb, c.Mutex("warm-up")) // connections stand, and the scripts are known
	return c
}

// pair locks and unlocks.
func pair(tb testing.TB, m *leasehold.Mutex) {
	tb.Helper()
	pairIn(context.Background(), tb, m)
}

var (
	until = await.Until
	noErr = ask.NoError
)

// lock takes the lock "k".
func lock(tb testing.TB, c *leasehold.Client) *leasehold.Lease {
	tb.Helper()
	l, err := c.Mutex("k").Lock(context.Background())
	noErr(tb, err)
	return l
}

// held is how many locks hold has taken.
var held atomic.Int64

// hold takes n locks with names of their own, and releases them when the test ends.
func hold(t *testing.T, c *leasehold.Client, n int) {
	t.Helper()
	for range n {
		l, err := c.Mutex(fmt.Sprint("lease ", held.Add(1))).Lock(context.Background())
		noErr(t, err)
		t.Cleanup(func() { noErr(t, l.Release()) })
	}
}

// queue starts n waiters for the lock "k", and waits until they have tickets. Each of them releases
// the lock at once, or gives up when ctx is cancelled.
func queue(ctx context.Context, t *testing.T, clients []*leasehold.Client, n int) (served *sync.WaitGroup) {
	t.Helper()
	served = new(sync.WaitGroup)
	for i := range n {
		served.Go(func() {
			l, err := clients[i%len(clients)].Mutex("k").Lock(ctx)
			if err == nil {
				err = l.Release()
			}
			if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("gave up: %v", err)
			}
		})
	}
	until(t, func() bool { return queued(t, clients[0]) == n })
	return served
}
