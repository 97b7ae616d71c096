package httpdriver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/server"
)

// P3: over HTTP/2 all requests of a client share a connection. If it goes silent between two
// renewals, a new connection renews the lease while a third of its TTL is left.
func TestTransport_SilentHTTP2ConnectionCostsALeaseNoTry(t *testing.T) {
	const ttl = 9 * time.Second
	for after := 50 * time.Millisecond; after < ttl/3; after += ttl / 30 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				s, err := server.New(store)
				if err != nil {
					t.Fatal(err)
				}
				network := pipenet.Listen()
				h := &httptest.Server{Listener: network, EnableHTTP2: true, Config: &http.Server{Handler: s}}
				h.StartTLS()
				var dials atomic.Int64
				d, err := httpdriver.Open("https://service", httpdriver.WithFresh(func() *http.Client {
					client := httpdriver.NewClient()
					transport := client.Transport.(*http.Transport)
					transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of a test server
					transport.DialContext = func(ctx context.Context, protocol, address string) (net.Conn, error) {
						dials.Add(1)
						return network.Dial(ctx, protocol, address)
					}
					return client
				}))
				if err != nil {
					t.Fatal(err)
				}
				client, err := leasehold.New(d, leasehold.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				lease, err := client.Mutex("job").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(ttl/3 + after)
				network.Silence()
				least := ttl
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					least = min(least, lease.Remaining())
				}
				if least < ttl/3 || dials.Load() != 2 {
					t.Errorf("%v of the lease were left once, and %d connections were opened; want %v and 2", least, dials.Load(), ttl/3)
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
				h.CloseClientConnections()
				h.Close()
				_ = s.Close()
				_ = store.Close()
			})
		})
	}
}
