//go:build linux

package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// TestService_L4_HeldBackAcquireCannotLockAfterTheRelease delays the first request of the
// service to its store until the lease of the second request has been released. The client
// cannot undo the first request, because only the service has sent it.
func TestService_L4_HeldBackAcquireCannotLockAfterTheRelease(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	proxy := respproxy.Start(t, store.Addr())
	behind := "redis://" + proxy.Addr() + "?timeout=1s"                      // long enough for a busy machine
	d, err := open("http://" + startService(t, behind).addr + "?timeout=5s") // the service gives up its first try before
	if err != nil {
		t.Fatal(err)
	}
	c, err := leasehold.New(d)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lock := func(key string) *leasehold.Lease {
		l, err := c.Mutex(key).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for range 3 { // connect, and fill the caches
		_ = lock("warm-up").Release()
	}
	held := proxy.Add(respproxy.Hold, 1, respproxy.Mentions("orders"))
	l := lock("orders")
	held.WaitFired(t, 1)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	held.Release()
	time.Sleep(300 * time.Millisecond) // there is no signal when it has arrived
	if snap, err := c.Inspect(context.Background(), "orders"); err != nil || len(snap.Holders) > 0 {
		t.Errorf("locked after the release: %+v, %v", snap, err)
	}
}
