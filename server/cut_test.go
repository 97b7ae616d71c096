package server_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// callFor sends a request whose place outlasts its connection.
func (t *town) callFor(service int, key, id string, wait, ticket time.Duration) *phone {
	t.Helper()
	return t.post(service, key, fmt.Sprintf(`{"leaseId":%q,"ttlMs":60000,"waitMs":%d,"ticketMs":%d}`, id, wait.Milliseconds(), ticket.Milliseconds()))
}

// A proxy has sent a long poll twice, and cuts both connections, one after the other.
func TestVanish_HR_E11_APlaceIsKeptWhenAllConnectionsOfItAreCut(t *testing.T) {
	store, gone := memdriver.New(), make(chan string, 2)
	var asked atomic.Int64
	counted := answeredBy(store.Join(), func(context.Context, string, string, driver.Reply) error { asked.Add(1); return nil })
	town := &town{t, store, [2]string{listen(t, counted, ends(gone))}}
	town.take("k", "holder")
	first := town.callFor(0, "k", "w", time.Minute, 30*time.Second)
	town.await("k", window, "queued", queueOf(1))
	before := asked.Load()
	second := town.callFor(0, "k", "w", time.Minute, 30*time.Second)
	town.await("k", window, "asked for by the second, too", func(driver.Snapshot) bool { return asked.Load() > before })
	first.die()
	soon(t, "the first request has ended", gone)
	second.die()
	soon(t, "the second request has ended", gone)
	town.await("k", window, "kept for ticketMs", func(s driver.Snapshot) bool {
		return len(s.Waiters) == 1 && s.Waiters[0].Remaining > 16*time.Second
	})
}

// A client with a place and an address for hints asks again, and a proxy cuts the connection
// while the service asks the store.
func TestVanish_HR_E11_APlaceWithAnAddressIsKeptWhenALaterRequestIsCut(t *testing.T) {
	store, gone := memdriver.New(), make(chan string, 4)
	entered, gate := make(chan struct{}), make(chan struct{})
	asked, did := 0, make(chan string, 4)
	slow := answeredBy(store.Join(), func(_ context.Context, verb, id string, _ driver.Reply) error {
		if verb != "acquire" {
			did <- id
		}
		return nil
	})
	slow.before = acquires(nil, func(id string) error {
		if asked++; asked > 2 && id == "w" {
			entered <- struct{}{}
			<-gate
		}
		return nil
	}).before
	town := &town{t, store, [2]string{listen(t, slow, ends(gone)), listen(t, store.Join())}}
	must(t, 201, "POST", town.url(0, "/v1/locks/k"), `{"leaseId":"holder","ttlMs":60000}`)
	var ears struct{ Address string }
	for stream := tune(t, town.url(0, "/v1/events")); ears.Address == ""; {
		stream.hear("ready", &ears)
	}
	body := fmt.Sprintf(`{"leaseId":"w","ttlMs":60000,"ticketMs":30000,"notify":%q}`, ears.Address)
	must(t, 202, "POST", town.url(0, "/v1/locks/k"), body)
	again := town.post(0, "k", body)
	soon(t, "the store is asked", entered)
	again.die()
	close(gate)
	soon(t, "the request has ended", gone)
	soon(t, "what is given up is given back", did)
	town.await("k", window, "kept for ticketMs", func(s driver.Snapshot) bool {
		return len(s.Waiters) == 1 && s.Waiters[0].Remaining > 16*time.Second
	})
}

// The wait of a long poll without a ticket has ended, and it leaves the queue while its client,
// whose connection a proxy has cut, asks again.
func TestWait_HR_A5_WhoLeavesEndsNothingThatItsClientWasTold(t *testing.T) {
	store := memdriver.New()
	leaving, gate := make(chan struct{}), make(chan struct{})
	slow := &hooked{store.Join(), func(_ context.Context, verb, id string) error {
		if verb == "release" && id == "w" {
			leaving <- struct{}{}
			<-gate
		}
		return nil
	}}
	seen := make(chan struct{}, 8)
	watch := server.WithObserver(func(_ *http.Request, x *server.Exchange) {
		if x.Operation() == "acquire" && x.LeaseID == "w" {
			seen <- struct{}{}
		}
	})
	town := &town{t, store, [2]string{listen(t, slow, watch), listen(t, store.Join())}}
	must(t, 201, "POST", town.url(1, "/v1/locks/k"), `{"leaseId":"holder"}`)
	first := town.callFor(0, "k", "w", 50*time.Millisecond, 0)
	soon(t, "the first request leaves", leaving)
	must(t, 204, "DELETE", town.url(1, "/v1/locks/k/leases/holder"), "")
	second := town.callFor(0, "k", "w", time.Minute, 0)
	select {
	case <-seen: // the second request is answered while the first leaves
	case <-time.After(200 * time.Millisecond): // the second request waits until the first has left
	}
	close(gate)
	first.answer()
	if status, text := second.answer(); status != 200 && status != 201 {
		t.Fatal(status, text)
	}
	if snap := town.look("k"); !heldBy("w")(snap) {
		t.Errorf("the reported lease is gone: %+v", snap)
	}
}
