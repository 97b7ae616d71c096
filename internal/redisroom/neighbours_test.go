package redisroom_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// Subscriptions may share a connection, and all of them share a channel. The end of one
// disturbs no other.
func TestWatch_TheEndOfASubscriptionIsNoneOfItsNeighbours(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(url string) store) {
		server := redistest.Start(t)
		d := open(server.URL())
		var resyncs atomic.Int32
		heard := make(chan driver.Hint, 16)
		watch := func(f func(driver.Hint)) driver.Subscription {
			sub, err := d.Watch(f)
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(20 * time.Second); sub.Address() == ""; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no address")
				}
			}
			return sub
		}
		leaves := watch(func(driver.Hint) {})
		stays := watch(func(h driver.Hint) {
			if h.Kind == driver.HintResync {
				resyncs.Add(1)
				return
			}
			heard <- h
		})
		address := stays.Address()
		if err := leaves.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Acquire(t.Context(), request("k", "a")); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Break(t.Context(), "k", "a", "a test"); err != nil {
			t.Fatal(err)
		}
		select {
		case h := <-heard:
			if h.Kind != driver.HintBroken || h.ID != "a" {
				t.Errorf("heard %+v", h)
			}
		case <-time.After(20 * time.Second):
			t.Error("no hint of the break arrived")
		}
		if now := stays.Address(); now != address || resyncs.Load() != 1 {
			t.Errorf("address %q, was %q; %d resyncs", now, address, resyncs.Load())
		}
		if err := stays.Close(); err != nil {
			t.Fatal(err)
		}
		nobodyListens(t, server)
	})
}

// TestWatch_TheEndOfASubscriptionWaitsForNoServerAndLeavesNothing: if a subscription ends while
// the server hangs, no channel stays subscribed once the server goes on.
func TestWatch_TheEndOfASubscriptionWaitsForNoServerAndLeavesNothing(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(url string) store) {
		server := redistest.Start(t)
		d := open(server.URL())
		ready := make(chan struct{}, 16)
		sub, err := d.Watch(func(driver.Hint) { ready <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		<-ready
		server.Stop()
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		server.Cont()
		nobodyListens(t, server)
	})
}

// nobodyListens waits until the server has no subscribed channels: hints to a forgotten channel
// would be sent for as long as the connection lives.
func nobodyListens(t *testing.T, server *redistest.Server) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		channels, err := server.Client().PubSubChannels(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(channels) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still subscribed to %q", channels)
		}
	}
}
