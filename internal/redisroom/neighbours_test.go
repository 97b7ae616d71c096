package redisroom_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// Subscriptions may share a connection, and all of them share a channel. The end of one
// disturbs no other.
func TestWatch_TheEndOfASubscriptionIsNoneOfItsNeighbours(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(url string) store) {
		server := redistest.Start(t)
		d := open(server.URL())
		leaves, stays := listen(t, d), listen(t, d)
		address := stays.Address()
		if err := leaves.Close(); err != nil {
			t.Fatal(err)
		}
		acquire(t, d, request("k", "a"), driver.Granted)
		if _, err := d.Break(t.Context(), "k", "a", "a test"); err != nil {
			t.Fatal(err)
		}
		if hint := <-stays.hints; hint.Kind != driver.HintBroken || hint.ID != "a" { // no HintResync before it
			t.Errorf("heard %+v", hint)
		}
		if now := stays.Address(); now != address || len(stays.hints) > 0 {
			t.Errorf("address %q, was %q, and %d more hints", now, address, len(stays.hints))
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
		sub := listen(t, d)
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
	eventually(t, "no channel is subscribed", func() bool {
		channels, err := server.Client().PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(channels) == 0
	})
}
