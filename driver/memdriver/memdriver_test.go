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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// asker calls a store and fails the test on an error.
type asker struct {
	*testing.T
	*memdriver.Driver
}

func (a asker) acquire(req driver.Request) driver.Reply {
	a.Helper()
	req.Key, req.TTL, req.ConfirmWindow = "k", time.Minute, time.Second
	reply, err := a.Acquire(a.Context(), req)
	if err != nil {
		a.Fatal(err)
	}
	return reply
}

func (a asker) renew(id, address string) (reply driver.Reply) {
	a.Helper()
	refs := []driver.Ref{{Key: "k", ID: id, TTL: time.Minute, TicketTTL: time.Minute, HintAddress: address}}
	a.Renew(a.Context(), refs, func(_ int, r driver.Reply, err error) {
		if err != nil {
			a.Fatal(err)
		}
		reply = r
	})
	return reply
}

func (a asker) release(id string) {
	a.Helper()
	if _, err := a.Release(a.Context(), driver.Ref{Key: "k", ID: id}); err != nil {
		a.Fatal(err)
	}
}

func TestStore_HintsComeInOrderAndMayCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := asker{t, memdriver.New()}
		var served []string
		var address string
		sub, err := a.Watch(func(h driver.Hint) {
			if h.Kind == driver.HintGranted && a.renew(h.ID, address).State == driver.Granted {
				served = append(served, h.ID)
				a.release(h.ID)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		address = sub.Address()
		a.acquire(driver.Request{ID: "holder"})
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint("w", i))
			a.acquire(driver.Request{ID: want[i], TicketTTL: time.Minute, HintAddress: address})
		}
		a.release("holder")
		synctest.Wait()
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(served, want) {
			t.Fatalf("served %q", served)
		}
	})
}

func TestStore_CloseConcernsNoOtherThatJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		a, b := asker{t, store}, asker{t, store.Join()}
		heard := 0
		sub, err := a.Watch(func(driver.Hint) { heard++ })
		if err != nil {
			t.Fatal(err)
		}
		b.acquire(driver.Request{ID: "holder"})
		a.acquire(driver.Request{ID: "waiter", TicketTTL: time.Minute, HintAddress: sub.Address()})
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		b.release("holder")
		synctest.Wait()
		if heard != 0 {
			t.Errorf("%d hints after the close", heard)
		}
		if _, err := a.Watch(func(driver.Hint) {}); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("watch: %v", err)
		}
		if _, _, err := a.List(t.Context(), "", ""); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("list: %v", err)
		}
		if _, err := b.Inspect(t.Context(), "k"); err != nil {
			t.Errorf("the other: %v", err)
		}
		if err := sub.Close(); err != nil {
			t.Errorf("subscription: %v", err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		all, cursor = append(all, keys...), next
	}
	if len(all) != n || pages < 3 || !slices.IsSorted(all) || len(slices.Compact(all)) != n {
		t.Fatalf("%d keys on %d pages", len(all), pages)
	}
}
