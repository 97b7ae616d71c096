package redisroom_test

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// The channels of these two prefixes have one name, since a channel's has no space.
func TestBreak_IsToldToTheStoresOfItsPrefixOnly(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d, other := open(s.URL()+"?prefix=a%20b:"), open(s.URL()+"?prefix=a_b:")
		e := listen(t, d)
		for _, d := range []store{other, d} {
			acquire(t, d, request(t.Name(), "a"), driver.Granted)
			reason := "of the other prefix"
			if d != other {
				reason = "of this prefix"
			}
			if _, err := d.Break(background, t.Name(), "a", reason); err != nil {
				t.Fatal(err)
			}
		}
		if hint := e.hear(t, driver.HintBroken, "a"); hint.Reason != "of this prefix" || hint.Key != t.Name() {
			t.Errorf("heard %+v", hint)
		}
	})
}

func TestBreak_IsToldThroughoutACluster(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(clusterURL(c, "prefix="+t.Name()+":"))
		var all []*ears
		for range 6 { // on nodes by chance
			all = append(all, listen(t, d))
		}
		for i := range 6 { // in other slots
			key, id := fmt.Sprint("k", i), fmt.Sprint("id", i)
			acquire(t, d, request(key, id), driver.Granted)
			if reply, err := d.Break(background, key, id, "why"); err != nil || reply.State != driver.Released {
				t.Fatalf("%+v, %v", reply, err)
			}
			for _, e := range all {
				if hint := e.hear(t, driver.HintBroken, id); hint.Key != key || hint.Reason != "why" {
					t.Errorf("heard %+v", hint)
				}
			}
		}
	})
}

// Subscriptions may share a connection, and all of them share a channel. The end of one
// disturbs no other, and waits for no server: if the server hangs, no channel stays subscribed once
// it goes on.
func TestWatch_TheEndOfASubscriptionDisturbsNoOtherAndLeavesNothing(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(url string) store) {
		server := redistest.Start(t)
		d := open(server.URL())
		leaves, stays := listen(t, d), listen(t, d)
		address := stays.Address()
		noErr(t, leaves.Close())
		acquire(t, d, request("k", "a"), driver.Granted)
		_, err := d.Break(t.Context(), "k", "a", "a test")
		noErr(t, err)
		if hint := <-stays.hints; hint.Kind != driver.HintBroken || hint.ID != "a" { // no HintResync before it
			t.Errorf("heard %+v", hint)
		}
		if now := stays.Address(); now != address || len(stays.hints) > 0 {
			t.Errorf("address %q, was %q, and %d more hints", now, address, len(stays.hints))
		}
		noErr(t, stays.Close())
		nobodyListens(t, server)

		hung := listen(t, d)
		server.Stop()
		err = hung.Close()
		server.Cont()
		noErr(t, err)
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
