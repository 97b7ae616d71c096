package library_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// nowhere is a store that grants everything and keeps no state, so that only the library is
// measured.
type nowhere struct {
	token    atomic.Int64
	renewals atomic.Int64
	batches  atomic.Int64
	flying   atomic.Int64
	peak     atomic.Int64
}

func (n *nowhere) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{State: driver.Granted, Token: n.token.Add(1), Holds: 1}, nil
}

func (n *nowhere) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	n.batches.Add(1)
	n.renewals.Add(int64(len(refs)))
	n.peak.Store(max(n.peak.Load(), n.flying.Add(1)))
	defer n.flying.Add(-1)
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

func (n *nowhere) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

func (n *nowhere) Close() error { return nil }

func TestScale_L10_FiftyThousandLeasesAreRenewedByFewGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &nowhere{}
		c := newClient(t, store, leasehold.WithTTL(ttl))
		n := int64(50_000)
		if testing.Short() {
			n /= 5
		}
		before := runtime.NumGoroutine()
		leases := make([]*leasehold.Lease, n)
		for i := range leases {
			leases[i] = lock(t, c, fmt.Sprint(i))
			if int64(i)%(n/10) == 0 {
				time.Sleep(50 * time.Millisecond) // not all at one instant
			}
		}
		time.Sleep(20 * time.Second)
		if got := runtime.NumGoroutine() - before; got > 5 {
			t.Errorf("%d goroutines between renewals", got)
		}
		for _, l := range leases {
			if l.State() != leasehold.Held || l.Remaining() < ttl/3 {
				t.Fatalf("%s: %v, %v left", l.Key(), l.State(), l.Remaining())
			}
		}
		// That is 6 renewal periods.
		if got := store.renewals.Load(); got < 5*n || got > 8*n {
			t.Errorf("%d renewals of %d leases in 20s", got, n)
		}
		if got := store.batches.Load(); got > 8*(n/1000+20) {
			t.Errorf("%d batches for %d renewals", got, store.renewals.Load())
		}
		if got := store.peak.Load(); got > n/1000+5 {
			t.Errorf("%d batches at a time", got)
		}
	})
}

// TestScale_LeaseIsSmall measures the heap in a process of its own, where no garbage of earlier
// tests distorts the result.
func TestScale_LeaseIsSmall(t *testing.T) {
	skip.Racing(t, "it measures memory")
	const alone = "LEASEHOLD_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestScale_LeaseIsSmall$", "-test.v", fmt.Sprint("-test.short=", testing.Short()))
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "bytes per held lease") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const most, mostWithContext = 500, 750 // bytes
	for _, row := range []struct {
		name   string
		parent func() (context.Context, context.CancelFunc)
	}{
		{"background", func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }},
		{"cancellable parent", func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClient(t, &nowhere{}, leasehold.WithTTL(time.Hour))
			ctx, cancel := row.parent()
			defer cancel()
			n := uint64(100_000)
			if testing.Short() {
				n /= 5
			}
			keys := make([]string, n)
			leases := make([]*leasehold.Lease, n)
			for i := range keys {
				keys[i] = fmt.Sprint("orders/", i)
			}
			heap := func() (uint64, int) {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc, runtime.NumGoroutine()
			}
			before, goroutines := heap()
			for i, key := range keys {
				leases[i] = must(t)(c.Mutex(key).TryLock(ctx))
			}
			after, now := heap()
			for _, l := range leases {
				l.Context().Done()
			}
			asked, _ := heap()
			bytes, context := (after-before)/n, (asked-before)/n
			t.Logf("%d bytes per held lease, %d with its context; %d more goroutines", bytes, context, now-goroutines)
			if bytes > most || context > mostWithContext {
				t.Errorf("%d bytes per lease, %d with its context, want %d and %d at most", bytes, context, most, mostWithContext)
			}
			if now-goroutines > 5 {
				t.Errorf("%d goroutines for %d leases", now-goroutines, n)
			}
			runtime.KeepAlive(keys)
		})
	}
}
