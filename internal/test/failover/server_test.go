package failover_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// TestServer_R7_HoldsAndWaitsGoOnWhileItLoads: a server that has come back refuses all requests
// while it loads its data. Holders and waiters keep their leases and places. The test ends the
// load when both libraries were refused, however long that takes.
func TestServer_R7_HoldsAndWaitsGoOnWhileItLoads(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s, _ := redistest.StartHeld(t) // no lease expires while the machine is slow
	fill(t, s)
	both(t, func(r *rig) acts {
		url := s.URL() + "?timeout=2s"
		l, c := r.queueUp(url, "k"), r.client(url)
		refused := func() {
			r.eventually("refused because the server loads", func() bool {
				_, err := c.Mutex("other").TryLock(context.Background())
				loading := err != nil && strings.Contains(err.Error(), "loading its data")
				if loading && !errors.Is(err, leasehold.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", r.library, err)
				}
				return loading
			})
		}
		return acts{refused, func() { l.passToFirst(); l.passToSecond() }}
	}, func() {
		s.RestartLoading(6 * time.Millisecond) // takes two minutes, unless the test ends it
	}, func() {
		for end := time.Now().Add(patience); s.Client().ConfigSet(context.Background(), "key-load-delay", "0").Err() != nil; {
			if time.Now().After(end) {
				t.Fatal("the server does not answer while it loads")
			}
		}
	})
}

// fill gives a server something to load.
func fill(t *testing.T, s *redistest.Server) {
	t.Helper()
	pipe := s.Client().Pipeline()
	for i := range 20000 {
		// While it loads, the server serves its connections after each 1024 bytes of data,
		// and random text is not compressed.
		pipe.Set(context.Background(), fmt.Sprint("fill", i), rand.Text()+rand.Text()+rand.Text()+rand.Text(), 0)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// L7: on a server all leases share a few connections and scripts.
func TestServer_L7_OneHungRenewalAmongMany(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s := redistest.Start(t)
	both(t, func(r *rig) acts {
		proxy := respproxy.Start(t, s.Addr())
		c := r.client("redis://"+proxy.Addr()+"?timeout=1s", leasehold.WithTTL(patience), leasehold.WithRenewFraction(0.05))
		leases := make([]*leasehold.Lease, 250)
		for i := range leases {
			leases[i] = r.lock(c, fmt.Sprint("k", i))
		}
		hung := proxy.Add(respproxy.Hold, 3, respproxy.Mentions(leases[120].ID()))
		return acts{func() {
			hung.WaitFired(t, 3)
			r.renewed(leases...)
			hung.Release()
			r.renewed(leases...)
			r.wantNoLoss(c)
		}}
	}, nothing)
}
