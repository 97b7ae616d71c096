package httpdriver_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
	"github.com/leasehold-go/leasehold/server"
)

// serve starts a service on a store and returns its URL.
func serve(tb testing.TB, store driver.Driver, opts ...server.Option) string {
	tb.Helper()
	s, err := server.New(store, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, nil) }()
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		if err := <-done; err != http.ErrServerClosed { //nolint:errorlint // it is this one
			tb.Error(err)
		}
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

func open(tb testing.TB, url string) *httpdriver.Driver {
	tb.Helper()
	d, err := httpdriver.Open(url)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestConformance_Memory(t *testing.T) {
	url := serve(t, memdriver.New())
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.Driver { return open(tb, url) }, Without: drivertest.Guard,
	})
}

// Two services on one store are one: a driver talks to either.
func TestConformance_TwoServicesOnOneRedis(t *testing.T) {
	server := redistest.Start(t)
	var urls []string
	for range 2 {
		d, err := rueidisdriver.Open(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, serve(t, d))
	}
	next := make(chan string, 2)
	next <- urls[0]
	next <- urls[1]
	drivertest.Run(t, drivertest.Config{Open: func(tb testing.TB) driver.Driver {
		url := <-next
		next <- url
		return open(tb, url)
	}, Without: drivertest.Guard})
}
