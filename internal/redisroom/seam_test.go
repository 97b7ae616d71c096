package redisroom_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/redisdriver"
)

// newStore returns a store on a server.
func newStore(t testing.TB, s *redistest.Server, opts ...redisdriver.Option) *redisdriver.Driver {
	t.Helper()
	d, err := redisdriver.New(redis.NewClient(&redis.Options{Addr: s.Addr()}), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
