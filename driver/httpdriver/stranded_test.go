package httpdriver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// eachStranded runs f for each protocol, with a driver that has used many connections over a
// network that can forget them.
func eachStranded(t *testing.T, f func(t *testing.T, d *httpdriver.Driver, sub driver.Subscription, forget func())) {
	t.Helper()
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			inMemory(t, protocol, aService, func(t *testing.T, d *httpdriver.Driver, n *network) {
				sub, err := d.Watch(func(driver.Hint) {})
				if err != nil {
					t.Fatal(err)
				}
				defer sub.Close()
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() { _, _, _ = d.List(t.Context(), "", "") })
				}
				all.Wait()
				synctest.Wait()
				if sub.Address() == "" {
					t.Fatal("no stream")
				}
				f(t, d, sub, n.Silence)
			}, httpdriver.WithTimeout(time.Second))
		})
	}
}

// P3: a router or a NAT that has forgotten a connection drops its packets. The service is
// healthy, and other clients reach it.
func TestTransport_ConnectionsThatLeadNowhereCostOneTimeout(t *testing.T) {
	eachStranded(t, func(t *testing.T, d *httpdriver.Driver, sub driver.Subscription, forget func()) {
		forget()
		var err error
		for range 2 {
			_, _, err = d.List(t.Context(), "", "")
		}
		if err != nil {
			t.Errorf("the second request: %v", err)
		}
		eventually(t, func() bool { return sub.Address() != "" })
	})
}

// P3: a try to renew a short lease has less time than most requests.
func TestTransport_ConnectionsThatLeadNowhereCostAShortLeaseOneRenewal(t *testing.T) {
	eachStranded(t, func(t *testing.T, d *httpdriver.Driver, _ driver.Subscription, forget func()) {
		req := request("k", "a")
		req.TTL = 500 * time.Millisecond
		if _, err := d.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		forget()
		var err error
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), req.TTL/3)
			d.Renew(ctx, []driver.Ref{{Key: req.Key, ID: req.ID, TTL: req.TTL}}, func(_ int, _ driver.Reply, e error) { err = e })
			cancel()
		}
		if err != nil {
			t.Errorf("the second renewal: %v", err)
		}
	})
}

// A call with a short deadline is no evidence against the connection.
func TestTransport_CallersInAHurryCostNoConnection(t *testing.T) {
	slow := func(t *testing.T) http.Handler {
		s := service(t, memdriver.New())
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "slow") {
				<-r.Context().Done()
				return
			}
			s.ServeHTTP(w, r)
		})
	}
	inMemory(t, "HTTP/2.0", slow, func(t *testing.T, d *httpdriver.Driver, n *network) {
		const rounds = 20
		for i := range rounds {
			if _, err := d.Acquire(t.Context(), request(fmt.Sprint("k", i), "a")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := d.Inspect(ctx, "slow"); err == nil {
				t.Error("the slow call was answered")
			}
			cancel()
		}
		if n := n.dials.Load(); n > rounds/4 {
			t.Errorf("%d connections for %d callers in a hurry", n, rounds)
		}
	})
}

// P3: over HTTP/2 all requests of a client share a connection. If it goes silent between two
// renewals, a new connection renews the lease while a third of its TTL is left.
func TestTransport_SilentHTTP2ConnectionCostsALeaseNoTry(t *testing.T) {
	const ttl = 9 * time.Second
	for after := 50 * time.Millisecond; after < ttl/3; after += ttl / 30 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			inMemory(t, "HTTP/2.0", aService, func(t *testing.T, d *httpdriver.Driver, n *network) {
				client := clientOf(t, d, leasehold.WithTTL(ttl))
				lease := locked(t, client, "job")
				time.Sleep(ttl/3 + after)
				n.Silence()
				least := ttl
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					least = min(least, lease.Remaining())
				}
				if least < ttl/3 || n.dials.Load() != 2 {
					t.Errorf("%v of the lease were left once, and %d connections were opened; want %v and 2", least, n.dials.Load(), ttl/3)
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
