package httpdriver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/server"
)

// serve starts a service on a store and returns its URL.
func serve(tb testing.TB, store driver.Driver, opts ...server.Option) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	serveOn(tb, l, store, opts...)
	return "http://" + l.Addr().String()
}

// serveOn starts a service on a store that takes the connections of a listener.
func serveOn(tb testing.TB, l net.Listener, store driver.Driver, opts ...server.Option) {
	tb.Helper()
	s, err := server.New(store, opts...)
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

// TestConformance_Memory plays the suite in virtual time: each row has a service of its own,
// and a network in memory.
func TestConformance_Memory(t *testing.T) {
	var network *pipenet.Listener
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.Driver {
			transport := &http.Transport{DialContext: network.Dial}
			tb.Cleanup(transport.CloseIdleConnections)
			return openBy(tb, "http://service", &http.Client{Transport: transport})
		},
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				network = pipenet.Listen()
				serveOn(t, network, memdriver.New())
				row(t)
			})
		},
		Without: drivertest.Guard,
	})
}

func openBy(tb testing.TB, url string, client *http.Client) *httpdriver.Driver {
	tb.Helper()
	d, err := httpdriver.Open(url, httpdriver.WithClient(client))
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// Two services on one store are one: a driver talks to either.
func TestConformance_TwoServicesOnOneRedis(t *testing.T) {
	skip.Nightly(t, "make test plays the same rows on one service")
	server, advance := redistest.StartHeld(t)
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
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.Driver {
			url := <-next
			next <- url
			return openAsker(tb, url)
		},
		Advance: advance,
		Without: drivertest.Guard,
	})
}

// A client may send all of its requests by one connection, on which many of them wait.
func TestConformance_OverOneConnection(t *testing.T) {
	skip.Nightly(t, "make test plays the same rows by HTTP/1.1")
	var service *httptest.Server
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.Driver { return openBy(tb, "https://example.com", service.Client()) },
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				s, err := server.New(store)
				if err != nil {
					t.Fatal(err)
				}
				network := pipenet.Listen()
				service = &httptest.Server{Listener: network, EnableHTTP2: true, Config: &http.Server{Handler: s}}
				service.StartTLS()
				service.Client().Transport.(*http.Transport).DialContext = network.Dial
				t.Cleanup(func() {
					service.Close()
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					if err := store.Close(); err != nil {
						t.Error(err)
					}
				})
				row(t)
			})
		},
		Without: drivertest.Guard,
	})
}
