package server_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestLease_CostsTheStoreAsLittleAsItCan: the service stores no leases, but passes to the store
// whether the lock was contended.
func TestLease_CostsTheStoreAsLittleAsItCan(t *testing.T) {
	redis := redistest.Start(t)
	d, err := rueidisdriver.Open(redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	url := listen(t, d) + "/v1/locks/k"
	made := 0
	id := func() string {
		made++
		return fmt.Sprintf("%026d", made)
	}
	take := func(id string) {
		if status, text := ask(t, "POST", url, fmt.Sprintf(`{"leaseId":%q,"waitMs":60000}`, id)); status != 201 {
			t.Error(status, text)
		}
	}
	free := func(id string) {
		if status, text := ask(t, "DELETE", url+"/leases/"+id, ""); status != 204 {
			t.Error(status, text)
		}
	}
	// A new connection costs one more command for the server's clock, and an old ticket one more
	// to keep it, so each case is tried again.
	costs := func(what string, want map[string]int64, play func() map[string]int64) {
		t.Helper()
		var got map[string]int64
		for range 5 {
			got = play()
			maps.DeleteFunc(got, func(name string, _ int64) bool { _, counts := want[name]; return !counts })
			if maps.Equal(got, want) {
				return
			}
		}
		t.Errorf("%s costs %v, want %v", what, got, want)
	}

	costs("a free pair", map[string]int64{"evalsha": 2, "set": 1, "incr": 1, "get": 1, "getrange": 1, "psetex": 1, "del": 1}, func() map[string]int64 {
		return redis.Calls(t, func() {
			one := id()
			take(one)
			free(one)
		})
	})
	costs("a hand-over", map[string]int64{"evalsha": 2}, func() map[string]int64 {
		holder, next := id(), id()
		take(holder)
		granted := make(chan struct{})
		go func() {
			defer close(granted)
			take(next)
		}()
		await(t, d, 1)
		got := redis.Calls(t, func() {
			free(holder)
			<-granted
		})
		free(next)
		return got
	})
}

// crowd is a store that returns next, with Uncontended, and records Uncontended of each release.
type crowd struct {
	instant
	next driver.Reply
	told []bool
}

func (s *crowd) Acquire(context.Context, driver.Request) (driver.Reply, error) { return s.next, nil }

func (s *crowd) Release(_ context.Context, ref driver.Ref) (driver.Reply, error) {
	s.told = append(s.told, ref.Uncontended)
	return driver.Reply{State: driver.Released}, nil
}

func TestLease_TellsTheStoreWhoWasAlone(t *testing.T) {
	store := new(crowd)
	url := listen(t, store) + "/v1/locks/"
	release := func(key string, want bool) {
		t.Helper()
		ask(t, "DELETE", url+key+"/leases/a", "")
		if got := store.told[len(store.told)-1]; got != want {
			t.Errorf("release of %s: alone %v, want %v", key, got, want)
		}
	}
	hear := func(key string, r driver.Reply) {
		store.next = r
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
