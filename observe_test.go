package leasehold_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/memdriver"
)

func TestObserveWait_TellsHolderAndPlacesUntilTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		client := func(owner string) *leasehold.Client {
			c, err := leasehold.New(store, leasehold.WithName(owner))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		holder, err := client("first").Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second, third := client("second").Mutex("k"), client("third").Mutex("k")
		go func() {
			lease, err := second.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Minute)
			_ = lease.Release()
		}()
		synctest.Wait()

		var places []int
		ctx := leasehold.ObserveWait(t.Context(), func(e leasehold.WaitEvent) {
			if len(places) == 0 && (e.Key != "k" || e.Waited != 0 || e.Holder.ID != holder.ID() || e.Holder.Remaining <= 0) {
				t.Errorf("the first event is %+v", e)
			}
			places = append(places, e.Position)
		})
		time.AfterFunc(time.Minute, func() { _ = holder.Release() })
		lease, err := third.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		seen := len(places)
		defer func() { _ = lease.Release() }()
		if got := slices.Compact(places); !slices.Equal(got, []int{2, 1}) {
			t.Errorf("places seen: %v", got)
		}
		time.Sleep(time.Minute)
		if len(places) != seen {
			t.Error("observed after the grant")
		}
	})
}
