package locktest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// Drivers of real stores, for the live cases.

// onGoRedis returns a driver on a client of its own.
func onGoRedis(tb testing.TB, addr string) driver.Driver {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { _ = client.Close() })
	d, err := redisdriver.New(client)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func onRueidis(tb testing.TB, addr string) driver.Driver {
	tb.Helper()
	d, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func onPostgres(tb testing.TB, url string) driver.Driver {
	tb.Helper()
	d, err := postgresdriver.Open(url)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func onDirectory(tb testing.TB, dir string) driver.Driver {
	tb.Helper()
	d, err := filedriver.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// gone is the time to live of a missing key.
const gone time.Duration = -2

// endsByItself checks that no lock is left, and that the fencing counters and records expire: an
// hour after the last time that they store.
func endsByItself(tb testing.TB, server *redistest.Server) {
	tb.Helper()
	for _, key := range server.Keys(tb) {
		ttl := server.Client().PTTL(context.Background(), key).Val()
		if ttl == gone {
			continue // it has ended since it was listed
		}
		if !strings.Contains(key, "\x1f") || ttl <= 0 || ttl > time.Hour+2*time.Minute {
			tb.Errorf("left: %q, time to live %v", key, ttl)
		}
	}
}
