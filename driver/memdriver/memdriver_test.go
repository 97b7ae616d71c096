package memdriver_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noError = ask.NoError

func TestConformance(t *testing.T) {
	var store *memdriver.Driver
	drivertest.Run(t, drivertest.Config{
		Open: func(testing.TB) driver.Driver { return store.Join() },
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				store = memdriver.New()
				row(t)
			})
		},
	})
}

// acquire asks for the key "k". A request with an address may wait.
func acquire(t *testing.T, d *memdriver.Driver, id, address string, want driver.State) {
	t.Helper()
	req := driver.Request{Key: "k", ID: id, TTL: time.Minute, ConfirmWindow: time.Second, HintAddress: address}
	if address != "" {
		req.TicketTTL = time.Minute
	}
	if reply, err := d.Acquire(t.Context(), req); err != nil || reply.State != want {
		t.Fatalf("acquire %s: %+v, %v; want state %v", id, reply, err, want)
	}
}

func release(t *testing.T, d *memdriver.Driver, id string) {
	t.Helper()
	if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: id}); err != nil {
		t.Fatal(err)
	}
}

func TestStore_HintsComeInOrderAndMayCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memdriver.New()
		var served []string
		var address string
		sub, err := d.Watch(func(h driver.Hint) {
			if h.Kind == driver.HintGranted {
				acquire(t, d, h.ID, address, driver.Granted)
				served = append(served, h.ID)
				release(t, d, h.ID)
			}
		})
		noError(t, err)
		address = sub.Address()
		acquire(t, d, "holder", "", driver.Granted)
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint("w", i))
			acquire(t, d, want[i], address, driver.Queued)
		}
		release(t, d, "holder")
		synctest.Wait()
		noError(t, sub.Close())
		if !slices.Equal(served, want) {
			t.Fatalf("served %q", served)
		}
	})
}

func TestClose_EndsTheSubscriptionsOfADriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memdriver.New()
		b := a.Join()
		heard := 0
		sub, err := a.Watch(func(driver.Hint) { heard++ })
		noError(t, err)
		acquire(t, b, "holder", "", driver.Granted)
		acquire(t, a, "waiter", sub.Address(), driver.Queued)
		noError(t, a.Close())
		release(t, b, "holder")
		synctest.Wait()
		if heard != 0 {
			t.Errorf("%d hints after the close", heard)
		}
		_, watch := a.Watch(func(driver.Hint) {})
		_, _, list := a.List(t.Context(), "", "")
		if !errors.Is(watch, driver.ErrClosed) || !errors.Is(list, driver.ErrClosed) {
			t.Errorf("watch: %v; list: %v", watch, list)
		}
		noError(t, sub.Close())
	})
}

func TestList_Pages(t *testing.T) {
	store := memdriver.New()
	const n = 600
	for i := range n {
		_, _ = store.Acquire(t.Context(), driver.Request{Key: fmt.Sprintf("k%04d", i), ID: "a", TTL: time.Minute})
	}
	var all []string
	pages := 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		keys, next, err := store.List(t.Context(), "k", cursor)
		noError(t, err)
		all, cursor = append(all, keys...), next
	}
	if len(all) != n || pages < 3 || !slices.IsSorted(all) || len(slices.Compact(all)) != n {
		t.Fatalf("%d keys on %d pages", len(all), pages)
	}
}
