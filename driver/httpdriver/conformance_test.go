package httpdriver_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/server"
)

// service returns a service on a store. Both are closed at the end of the test.
func service(tb testing.TB, store driver.Driver, opts ...server.Option) *server.Server {
	tb.Helper()
	s, err := server.New(store, opts...)
	noErr(tb, err)
	tb.Cleanup(func() {
		noErr(tb, s.Close())
		noErr(tb, store.Close())
	})
	return s
}

// listen starts a server and returns its URL.
func listen(tb testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s.URL
}

// open returns a driver on the service at a URL. It is closed at the end of the test.
func open(tb testing.TB, url string, opts ...httpdriver.Option) *httpdriver.Driver {
	tb.Helper()
	d, err := httpdriver.Open(url, opts...)
	noErr(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// clientOf returns a client of a store, which is closed at the end of the test.
func clientOf(t *testing.T, store driver.Driver, opts ...leasehold.Option) *leasehold.Client {
	t.Helper()
	c, err := leasehold.New(store, opts...)
	noErr(t, err)
	t.Cleanup(func() {
		noErr(t, c.Close())
	})
	return c
}

// locked locks the mutex of a key.
func locked(t *testing.T, c *leasehold.Client, key string) *leasehold.Lease {
	t.Helper()
	l, err := c.Mutex(key).Lock(t.Context())
	noErr(t, err)
	return l
}

// network is a network in memory, which counts connections.
type network struct {
	*pipenet.Listener
	dials atomic.Int64
}

// Dial implements the DialContext of a transport.
func (n *network) Dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	n.dials.Add(1)
	return n.Listener.Dial(ctx, protocol, address)
}

// open returns a driver with clients that use the network.
func (n *network) open(t *testing.T, url string, opts ...httpdriver.Option) *httpdriver.Driver {
	return open(t, url, append(opts, httpdriver.WithFresh(func() *http.Client {
		client := httpdriver.NewClient()
		transport := client.Transport.(*http.Transport)
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of a test server
		transport.DialContext = n.Dial
		return client
	}))...)
}

// aService returns a service on an empty store.
func aService(t *testing.T) http.Handler { return service(t, memdriver.New()) }

// protocols are those of a service, each with its scheme.
var protocols = map[string]string{"HTTP/1.1": "http", "HTTP/2.0": "https"}

// serve starts a server of a protocol.
func serve(l net.Listener, h http.Handler, protocol string) *httptest.Server {
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}, EnableHTTP2: protocol == "HTTP/2.0"}
	if s.EnableHTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	return s
}

// inMemory plays f in virtual time, on a driver that asks the handler by a protocol, over a
// network in memory.
func inMemory(t *testing.T, protocol string, handler func(*testing.T) http.Handler, f func(t *testing.T, d *httpdriver.Driver, n *network), opts ...httpdriver.Option) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{Listener: pipenet.Listen()}
		s := serve(n, handler(t), protocol)
		d := n.open(t, protocols[protocol]+"://service", opts...)
		f(t, d, n)
		_ = d.Close()
		s.CloseClientConnections()
		s.Close()
	})
}

// cleaned returns a handler that passes each request on as a proxy does that decodes paths
// and cleans them.
func cleaned(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path, r.URL.RawPath = path.Clean(r.URL.Path), ""
		h.ServeHTTP(w, r)
	})
}

// TestConformance plays the suite in virtual time: each row has a store of its own, and networks
// in memory, on which processes talk in turn to one of two services on the store, behind a proxy that
// cleans paths. By HTTP/2 requests share a connection, also while many of them wait.
func TestConformance(t *testing.T) {
	for protocol, scheme := range protocols {
		t.Run(protocol, func(t *testing.T) {
			if protocol == "HTTP/2.0" {
				skip.Nightly(t, "make test plays the same rows by HTTP/1.1")
			}
			var all [2]*httptest.Server
			next := 0
			drivertest.Run(t, drivertest.Config{
				Open: func(tb testing.TB) driver.Driver {
					next++
					return open(tb, scheme+"://example.com", httpdriver.WithClient(all[next%2].Client()))
				},
				Wrap: func(t *testing.T, row func(*testing.T)) {
					synctest.Test(t, func(t *testing.T) {
						store := memdriver.New()
						for i := range all {
							l := pipenet.Listen()
							all[i] = serve(l, cleaned(service(t, store.Join())), protocol)
							all[i].Client().Transport.(*http.Transport).DialContext = l.Dial
							t.Cleanup(all[i].Close)
						}
						row(t)
					})
				},
				Without: drivertest.Guard,
			})
		})
	}
}

var (
	eventually = await.Until
	noErr      = ask.NoError
)
