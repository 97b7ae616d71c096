package leaseholdprom_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
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
	ask.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, m
}

func take(t *testing.T, lock leasehold.Locker) *leasehold.Lease {
	t.Helper()
	l, err := lock.TryLock(t.Context())
	ask.NoError(t, err)
	return l
}

// measured returns the values of all counters and gauges, and the sums of all histograms, by the values
// of their labels.
func measured(t *testing.T, m *leaseholdprom.Metrics) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	ask.NoError(t, err)
	all := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.Metric {
			name, ok := strings.CutPrefix(f.GetName(), "leasehold_")
			if !ok {
				t.Errorf("the metric %s has no prefix", name)
			}
			for _, l := range metric.Label {
				name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			all[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() +
				metric.GetHistogram().GetSampleSum()
		}
	}
	return all
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
		ask.NoError(t, l.Release())
		broken, deleted, late := take(t, c.Mutex("orders/43")), take(t, c.Mutex("orders/44")), take(t, c.Mutex("orders/45"))
		ask.NoError(t, c.Break(t.Context(), "orders/43", broken.ID(), "stuck"))
		for _, l := range []*leasehold.Lease{deleted, late} {
			_, err := store.Release(t.Context(), driver.Ref{Key: l.Key(), ID: l.ID()})
			ask.NoError(t, err)
		}
		lost := func(l *leasehold.Lease) {
			if err := l.Release(); err == nil {
				t.Error("a lost lease was released")
			}
		}
		lost(late)
		<-broken.Context().Done()
		<-deleted.Context().Done()
		synctest.Wait()
		lost(broken)
		lost(deleted)
		take(t, c.Mutex("orders/46"))
		got := measured(t, m)
		maps.DeleteFunc(got, func(name string, _ float64) bool { return strings.Contains(name, "_seconds ") })
		if want := map[string]float64{
			"acquisitions_total class=gpu kind=semaphore outcome=granted": 1,
			"acquisitions_total class=orders kind=mutex outcome=granted":  5,
			"acquisitions_total class=orders kind=mutex outcome=held":     3,

			"held_leases class=gpu kind=semaphore": 1,
			"held_leases class=orders kind=mutex":  1,

			"losses_total class=gpu reason=broken":     0,
			"losses_total class=gpu reason=expired":    0,
			"losses_total class=gpu reason=failed":     0,
			"losses_total class=gpu reason=gone":       0,
			"losses_total class=gpu reason=release":    0,
			"losses_total class=orders reason=broken":  1,
			"losses_total class=orders reason=expired": 0,
			"losses_total class=orders reason=failed":  0,
			"losses_total class=orders reason=gone":    1,
			"losses_total class=orders reason=release": 1,

			"releases_total class=orders outcome=confirmed": 3,
			"releases_total class=orders outcome=lost":      1,

			"renewals_total class=gpu outcome=confirmed":    6,
			"renewals_total class=gpu outcome=failed":       0,
			"renewals_total class=orders outcome=confirmed": 5,
			"renewals_total class=orders outcome=failed":    0,
			"renewals_total class=orders outcome=lost":      1,
		}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		problems, err := testutil.CollectAndLint(m)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

func TestMetrics_TakeAClassThatIsCutWithinACharacter(t *testing.T) {
	c, m := open(t, memdriver.New(), func(key string) string { return key[:1] })
	ask.NoError(t, take(t, c.Mutex("édition/7")).Release())
	if got := measured(t, m); got["releases_total class=� outcome=confirmed"] != 1 {
		t.Errorf("%v", got)
	}
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
			if err := l.Release(); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(3 * time.Second)
		const labels = " class=k kind=mutex"
		if got := measured(t, m); got["waiters"+labels] != 1 {
			t.Errorf("%v", got)
		}
		ask.NoError(t, first.Release())
		<-done
		// In virtual time the message takes no time, but the bound on the store's
		// clock allows for its drift.
		got := measured(t, m)
		waiters, ok := got["waiters"+labels]
		handoff := got["handoff_seconds"+labels]
		if waiters != 0 || !ok || got["wait_seconds"+labels] != 3 || got["hold_seconds"+labels] != 8 ||
			handoff <= 0 || handoff > 0.1 {
			t.Errorf("%v", got)
		}
	})
}
