package overview

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func TestPresence_ServicesOfAStoreKnowOneAnotherWhileAPageIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		defer store.Close()
		var all []*Overview
		var ends []context.CancelFunc
		for range 3 {
			o := New(store, time.Second, slog.New(slog.DiscardHandler))
			all, ends = append(all, o), append(ends, nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); o.Run(ctx) }()
			ends[len(ends)-1] = func() { cancel(); <-done }
			time.Sleep(3 * time.Second)
		}
		room := func() driver.Snapshot {
			snap, err := store.Inspect(t.Context(), presenceKey)
			if err != nil {
				t.Fatal(err)
			}
			return snap
		}
		time.Sleep(time.Minute)
		if n := len(room().Holders); n != 0 {
			t.Errorf("%d leases though no page is open", n)
		}
		p := all[0].Open(Query{Limit: 10}, everything{})
		time.Sleep(25 * time.Second)
		heard := all[0].Vitals(time.Now()).Services
		if len(heard) != 3 {
			t.Fatalf("%+v, want three", heard)
		}
		self, open := 0, 0
		for _, s := range heard {
			if s.Self {
				self++
			}
			if s.Page {
				open++
			}
		}
		if self != 1 || open != 1 {
			t.Errorf("%+v", heard)
		}
		if v, err := p.Next(t.Context()); err != nil || v.Locks != 0 {
			t.Errorf("the table shows the presence as a lock: %+v, %v", v, err)
		}
		ends[1]() // it drains
		time.Sleep(25 * time.Second)
		if n := len(all[0].Vitals(time.Now()).Services); n != 2 {
			t.Errorf("%d after one has ended", n)
		}
		p.Close()
		time.Sleep(time.Minute)
		if n := len(room().Holders); n != 0 {
			t.Errorf("%d leases a minute after the page was closed", n)
		}
		ends[0]()
		ends[2]()
	})
}

func TestPresence_ALockOfThatNameThatIsSomebodyElsesIsNoService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		defer store.Close()
		if _, err := store.Acquire(t.Context(), driver.Request{Key: presenceKey, ID: "a", Owner: "w", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		o := New(store, time.Second, slog.New(slog.DiscardHandler))
		running(t, o)
		p := o.VitalsPage()
		defer p()
		time.Sleep(30 * time.Second)
		if v := o.Vitals(time.Now()); len(v.Services) != 0 || v.Samples[0].Failures != 0 {
			t.Errorf("%+v", v.Services)
		}
	})
}
