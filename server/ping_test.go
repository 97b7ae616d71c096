package server_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
)

// A client counts as gone if its HTTP/2 connection is silent during a wait.
func TestServe_SilentHTTP2ClientLeavesTheQueue(t *testing.T) {
	config := withTLS(t)
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		s := open(t, store)
		network := pipenet.Listen()
		go func() { _ = s.Serve(network, config) }()
		if _, err := store.Acquire(t.Context(), driver.Request{Key: "k", ID: "holder", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{
			DialContext: network.Dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test does not check the certificate
		}
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://service/v1/locks", strings.NewReader(`{"key":"k","leaseId":"a","waitMs":60000}`))
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := transport.RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
		}()
		waiters := func(within time.Duration) int {
			t.Helper()
			time.Sleep(within)
			snap, err := store.Inspect(t.Context(), "k")
			noErr(t, err)
			return len(snap.Waiters)
		}
		if n := waiters(40 * time.Second); n != 1 {
			t.Errorf("%d wait, want the client that answers pings", n)
		}
		network.Silence()
		if n := waiters(15 * time.Second); n != 0 {
			t.Errorf("%d wait, want 0", n)
		}
		cancel()
		<-asked
	})
}
