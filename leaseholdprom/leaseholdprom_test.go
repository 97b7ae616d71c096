package leaseholdprom_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/leaseholdprom"
)

func class(key string) string {
	class, _, _ := strings.Cut(key, "/")
	return class
}

// open returns a client of the store with metrics.
func open(t *testing.T, store *memdriver.Driver, class func(string) string) (*leasehold.Client, *leaseholdprom.Metrics) {
	t.Helper()
	m := leaseholdprom.New()
	c, err := leasehold.New(store, leasehold.WithObserver(m.Observer()), leasehold.WithClass(class))
	noErr(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, m
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func want(t *testing.T, m *leaseholdprom.Metrics, text string, names ...string) {
	t.Helper()
	noErr(t, testutil.CollectAndCompare(m, strings.NewReader(text), names...))
}

func take(t *testing.T, lock leasehold.Locker) *leasehold.Lease {
	t.Helper()
	l, err := lock.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMetrics_CountOutcomesAndLossesWithoutNamingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, m := open(t, store, class)
		l := take(t, c.Mutex("orders/42"))
		take(t, c.Semaphore("gpu", 4))
		for range 3 {
			if _, err := c.Mutex("orders/42").TryLock(t.Context()); err == nil {
				t.Fatal("granted twice")
			}
		}
		time.Sleep(55 * time.Second)
		noErr(t, l.Release())
		broken, deleted, late := take(t, c.Mutex("orders/43")), take(t, c.Mutex("orders/44")), take(t, c.Mutex("orders/45"))
		noErr(t, c.Break(t.Context(), "orders/43", broken.ID(), "stuck"))
		for _, l := range []*leasehold.Lease{deleted, late} {
			_, err := store.Release(t.Context(), driver.Ref{Key: l.Key(), ID: l.ID()})
			noErr(t, err)
		}
		if err := late.Release(); err == nil {
			t.Error("a lost lease was released")
		}
		<-broken.Context().Done()
		<-deleted.Context().Done()
		synctest.Wait()
		for _, l := range []*leasehold.Lease{broken, deleted} {
			if err := l.Release(); err == nil {
				t.Error("a lost lease was released")
			}
		}
		take(t, c.Mutex("orders/46"))
		want(t, m, `
# HELP leasehold_acquisitions_total Calls that asked for a lock, by outcome.
# TYPE leasehold_acquisitions_total counter
leasehold_acquisitions_total{class="gpu",kind="semaphore",outcome="granted"} 1
leasehold_acquisitions_total{class="orders",kind="mutex",outcome="granted"} 5
leasehold_acquisitions_total{class="orders",kind="mutex",outcome="held"} 3
# HELP leasehold_held_leases Leases that are held.
# TYPE leasehold_held_leases gauge
leasehold_held_leases{class="gpu",kind="semaphore"} 1
leasehold_held_leases{class="orders",kind="mutex"} 1
# HELP leasehold_losses_total Leases that ended before they were released, by reason.
# TYPE leasehold_losses_total counter
leasehold_losses_total{class="gpu",reason="broken"} 0
leasehold_losses_total{class="gpu",reason="expired"} 0
leasehold_losses_total{class="gpu",reason="failed"} 0
leasehold_losses_total{class="gpu",reason="gone"} 0
leasehold_losses_total{class="gpu",reason="release"} 0
leasehold_losses_total{class="orders",reason="broken"} 1
leasehold_losses_total{class="orders",reason="expired"} 0
leasehold_losses_total{class="orders",reason="failed"} 0
leasehold_losses_total{class="orders",reason="gone"} 1
leasehold_losses_total{class="orders",reason="release"} 1
# HELP leasehold_releases_total Releases of leases, by outcome.
# TYPE leasehold_releases_total counter
leasehold_releases_total{class="orders",outcome="confirmed"} 3
leasehold_releases_total{class="orders",outcome="lost"} 1
# HELP leasehold_renewals_total Renewals of leases, by outcome.
# TYPE leasehold_renewals_total counter
leasehold_renewals_total{class="gpu",outcome="confirmed"} 6
leasehold_renewals_total{class="gpu",outcome="failed"} 0
leasehold_renewals_total{class="orders",outcome="confirmed"} 5
leasehold_renewals_total{class="orders",outcome="failed"} 0
leasehold_renewals_total{class="orders",outcome="lost"} 1
`, "leasehold_acquisitions_total", "leasehold_held_leases", "leasehold_releases_total", "leasehold_renewals_total", "leasehold_losses_total")
		problems, err := testutil.CollectAndLint(m)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

func TestMetrics_TakeAClassThatIsCutWithinACharacter(t *testing.T) {
	c, m := open(t, memdriver.New(), func(key string) string { return key[:1] })
	noErr(t, take(t, c.Mutex("édition/7")).Release())
	want(t, m, `
# HELP leasehold_releases_total Releases of leases, by outcome.
# TYPE leasehold_releases_total counter
leasehold_releases_total{class="�",outcome="confirmed"} 1
`, "leasehold_releases_total")
}

func TestMetrics_MeasureWaitHandoverAndHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := open(t, memdriver.New(), class)
		first := take(t, c.Mutex("k"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			l, err := c.Mutex("k").Lock(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(5 * time.Second)
			noErr(t, l.Release())
		}()
		time.Sleep(3 * time.Second)
		if n := testutil.CollectAndCount(m, "leasehold_waiters"); n != 1 {
			t.Errorf("%d series of waiters", n)
		}
		want(t, m, `
# HELP leasehold_waiters Calls that wait for a lock.
# TYPE leasehold_waiters gauge
leasehold_waiters{class="k",kind="mutex"} 1
`, "leasehold_waiters")
		noErr(t, first.Release())
		<-done
		sum := sums(t, m)
		if sum["leasehold_wait_seconds"] != 3 || sum["leasehold_hold_seconds"] != 8 {
			t.Errorf("waited and held %v", sum)
		}
		// In virtual time the message takes no time, but the bound on the store's
		// clock allows for its drift.
		if got := sum["leasehold_handoff_seconds"]; got <= 0 || got > 0.1 {
			t.Errorf("handed off in %v", got)
		}
		want(t, m, `
# HELP leasehold_waiters Calls that wait for a lock.
# TYPE leasehold_waiters gauge
leasehold_waiters{class="k",kind="mutex"} 0
`, "leasehold_waiters")
	})
}

// sums adds up the observations of each histogram.
func sums(t *testing.T, m *leaseholdprom.Metrics) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.Metric {
			sum[f.GetName()] += metric.GetHistogram().GetSampleSum()
		}
	}
	return sum
}
