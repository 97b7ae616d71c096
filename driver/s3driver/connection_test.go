package s3driver

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

// TestConnections_OneTimeLimitIsEnoughForAllThatAreDead checks that a network that has forgotten its
// connections costs one request, and that a closed driver has no connection.
func TestConnections_OneTimeLimitIsEnoughForAllThatAreDead(t *testing.T) {
	type number struct{}
	var made, dead, open atomic.Int64
	store := fakes3.New().Front(0)
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(number{}).(int64) <= dead.Load() {
			<-r.Context().Done()
			return
		}
		time.Sleep(5 * time.Millisecond)
		store.ServeHTTP(w, r)
	}))
	front.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, number{}, made.Add(1))
	}
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	front.Start()
	defer front.Close()
	defer front.CloseClientConnections()
	d, err := Open(urlOf(t, front.URL, "&timeout=200ms"))
	noError(t, err)
	defer d.Close()
	warm(t, d)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { _, _ = d.Inspect(t.Context(), "orders/42") })
	}
	all.Wait()
	if open.Load() < 3 {
		t.Fatalf("%d connections", open.Load())
	}
	dead.Store(made.Load())
	failures := 0
	for ; failures < 20; failures++ {
		if _, err := d.Inspect(t.Context(), "orders/42"); err == nil {
			break
		}
	}
	if failures != 1 {
		t.Errorf("%d requests failed", failures)
	}
	noError(t, d.Close())
	for range 100 {
		if open.Load() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d connections are left", open.Load())
}
