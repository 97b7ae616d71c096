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

// P3: a router or a NAT that has forgotten a connection drops its packets. The service is
// healthy, and other clients reach it. A try to renew a short lease has less time than most
// requests.
func TestTransport_ConnectionsThatLeadNowhereCostOneTimeout(t *testing.T) {
	req := request("k", "a")
	req.TTL = 500 * time.Millisecond
	for protocol := range protocols {
		for what, ask := range map[string]func(context.Context, *httpdriver.Driver) error{
			"list": verbs["list"],
			"renewal of a short lease": func(ctx context.Context, d *httpdriver.Driver) (err error) {
				ctx, cancel := context.WithTimeout(ctx, req.TTL/3)
				defer cancel()
				d.Renew(ctx, []driver.Ref{{Key: req.Key, ID: req.ID, TTL: req.TTL}}, func(_ int, _ driver.Reply, e error) { err = e })
				return err
			},
		} {
			t.Run(protocol+" "+what, func(t *testing.T) {
				inMemory(t, protocol, aService, func(t *testing.T, d *httpdriver.Driver, n *network) {
					sub, err := d.Watch(func(driver.Hint) {})
					noErr(t, err)
					defer sub.Close()
					var all sync.WaitGroup
					for range 20 { // so that many connections have been used
						all.Go(func() { _, _, _ = d.List(t.Context(), "", "") })
					}
					all.Wait()
					synctest.Wait()
					if sub.Address() == "" {
						t.Fatal("no stream")
					}
					if _, err := d.Acquire(t.Context(), req); err != nil {
						t.Fatal(err)
					}
					n.Silence()
					_ = ask(t.Context(), d)
					if err := ask(t.Context(), d); err != nil {
						t.Errorf("the second request: %v", err)
					}
					eventually(t, func() bool { return sub.Address() != "" })
				}, httpdriver.WithTimeout(time.Second))
			})
		}
	}
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
				noErr(t, client.Close())
			})
		})
	}
}
