package redisdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestConformance(t *testing.T) {
	s, advance := redistest.StartHeld(t)
	drivertest.Run(t, drivertest.Config{
		Open:    func(t testing.TB) driver.Driver { return over(t, s.Client()) },
		Advance: advance,
	})
}

// over returns a driver that uses a client.
func over(t testing.TB, client redis.UniversalClient) *redisdriver.Driver {
	t.Helper()
	d, err := redisdriver.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// application returns the client of an application.
func application(t *testing.T, opt *redis.Options) *redis.Client {
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t *testing.T, url string, opts ...redisdriver.Option) *redisdriver.Driver {
	t.Helper()
	d, err := redisdriver.Open(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func request(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, Owner: "tester", TTL: 10 * time.Second, ConfirmWindow: time.Second, Since: time.Now()}
}

func acquire(t testing.TB, d driver.Driver, req driver.Request) driver.Reply {
	t.Helper()
	reply, err := d.Acquire(context.Background(), req)
	if err != nil {
		t.Fatalf("acquire %s by %s: %v", req.Key, req.ID, err)
	}
	return reply
}

func release(t testing.TB, d driver.Driver, key, id string) {
	t.Helper()
	if _, err := d.Release(context.Background(), driver.Ref{Key: key, ID: id}); err != nil {
		t.Fatalf("release %s of %s: %v", key, id, err)
	}
}
