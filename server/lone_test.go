package server_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
)

// TestLease_CostsTheStoreTwoRequests, also if it was waited for: the ticket takes the lock.
func TestLease_CostsTheStoreTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(map[string]int)
		var mu sync.Mutex
		store := after(memdriver.New(), func(m *message) error {
			mu.Lock()
			defer mu.Unlock()
			asked[string(m.Verb)+" "+m.ID()]++
			return nil
		})
		_, base := serve(t, store)
		synctest.Wait() // for the subscription: a waiter that comes during it asks once more
		lock := base + "/v1/locks/k"
		must(t, 201, "POST", lock, `{"leaseId":"a"}`)
		var next sync.WaitGroup
		next.Go(func() { must(t, 201, "POST", lock, `{"leaseId":"b","waitMs":60000}`) })
		synctest.Wait()
		must(t, 204, "DELETE", lock+"/leases/a", "")
		next.Wait()
		must(t, 204, "DELETE", lock+"/leases/b", "")
		if want := map[string]int{"acquire a": 1, "release a": 1, "acquire b": 2, "release b": 1}; !maps.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
	})
}

func TestLease_TellsTheStoreWhoWasAlone(t *testing.T) {
	var reply driver.Reply
	var told bool
	store := before(memdriver.New(), func(context.Context, *message) error { return nil })
	store.Change = func(m *message, got *driver.Reply) {
		if *got = reply; m.Verb == intercept.Release {
			told, got.State = m.Refs[0].Uncontended, driver.Released
		}
	}
	url := listen(t, store) + "/v1/locks/"
	release := func(key string, want bool) {
		t.Helper()
		ask(t, "DELETE", url+key+"/leases/a", "")
		if told != want {
			t.Errorf("release of %s: alone %v, want %v", key, told, want)
		}
	}
	hear := func(key string, r driver.Reply) {
		reply = r
		ask(t, "POST", url+key, `{"ticketMs":1000}`)
	}
	alone := driver.Reply{State: driver.Granted, Token: 1, Uncontended: true}
	release("k", false)
	hear("k", alone)
	release("k", true)
	release("k", true) // a guess
	for _, other := range []driver.Reply{{State: driver.Queued, Position: 1}, {State: driver.Busy}, {State: driver.Granted, Token: 1}} {
		hear("k", alone)
		hear("k", other)
		release("k", false)
	}
	hear("k", alone)
	hear("k", driver.Reply{State: driver.Gone})
	release("k", true)
}
