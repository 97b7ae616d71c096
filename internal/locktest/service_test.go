package locktest_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

func TestServiceOnMemory(t *testing.T) {
	t.Parallel()
	url := serve(t, memdriver.New())
	Run(t, Config{
		Open:  func(tb testing.TB) driver.Driver { return onService(tb, url) },
		OneIn: 4,
	})
}

// TestServiceOnRedis takes its time with the race detector, which looks at the same code
// over memory; so it is among the long tests there.
func TestServiceOnRedis(t *testing.T) {
	if racing {
		t.Skip("played over memory with the race detector, and by make soak")
	}
	t.Parallel()
	serviceOnRedis(t)
}

func serviceOnRedis(t *testing.T) {
	redis := redistest.Start(t)
	url := serve(t, onRueidis(t, redis.Addr()))
	Run(t, Config{
		Open: func(tb testing.TB) driver.Driver { return onService(tb, url) },
		Flush: func(tb testing.TB) {
			if err := redis.Client().FlushAll(context.Background()).Err(); err != nil {
				tb.Fatal(err)
			}
		},
	})
}

func onService(tb testing.TB, url string) driver.Driver {
	tb.Helper()
	d, err := httpdriver.Open(url)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// serve runs a service of a store, and returns its URL.
func serve(t *testing.T, store driver.Driver) string {
	t.Helper()
	s, err := server.New(store)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, nil) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != http.ErrServerClosed { //nolint:errorlint // it is this one
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}
