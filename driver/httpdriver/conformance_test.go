package httpdriver_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
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

// TestConformance_Memory plays the suite in virtual time: each row has a store of its own, and
// a network in memory, on which processes talk in turn to one of two services on the store.
func TestConformance_Memory(t *testing.T) {
	var networks [2]*pipenet.Listener
	next := 0
	drivertest.Run(t, drivertest.Config{
		Open: func(tb testing.TB) driver.Driver {
			transport := &http.Transport{DialContext: networks[next%2].Dial}
			next++
			tb.Cleanup(transport.CloseIdleConnections)
			return openBy(tb, "http://service", &http.Client{Transport: transport})
		},
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				for i := range networks {
					networks[i] = pipenet.Listen()
					serveOn(t, networks[i], store.Join())
				}
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

// A client may send all requests over one connection, also while many of them wait.
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
