package httpdriver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
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

// asker asks again, as the library does, where the service had to ask its store twice: of
// a lease that lives for a moment, a machine that stands still makes it doubt an answer.
type asker struct{ driver.Wrapper }

func (a asker) Acquire(ctx context.Context, req driver.Request) (reply driver.Reply, err error) {
	for range 5 {
		if reply, err = a.Driver.Acquire(ctx, req); !errors.Is(err, httpdriver.ErrRepeated) {
			break
		}
	}
	return reply, err
}

func openAsker(tb testing.TB, url string) driver.Driver {
	tb.Helper()
	return asker{driver.Wrapper{Driver: open(tb, url)}}
}

func TestConformance_Memory(t *testing.T) {
	url := serve(t, memdriver.New())
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.Driver { return openAsker(tb, url) }, Without: drivertest.Guard,
	})
}

// Two services on one store are one: a driver talks to either.
func TestConformance_TwoServicesOnOneRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long plays it, and make test the same rows on one service")
	}
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
		return openAsker(tb, url)
	}, Without: drivertest.Guard})
}

// A client may send all of its requests by one connection, on which many of them wait.
func TestConformance_OverOneConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs the suite by HTTP/2 too")
	}
	store := memdriver.New()
	s, err := server.New(store)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(s)
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(func() { // the rows play side by side, after this function has returned
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	drivertest.Run(t, drivertest.Config{Open: func(tb testing.TB) driver.Driver {
		d, err := httpdriver.Open(h.URL, httpdriver.WithClient(h.Client()))
		if err != nil {
			tb.Fatal(err)
		}
		return asker{driver.Wrapper{Driver: d}}
	}, Without: drivertest.Guard})
}
