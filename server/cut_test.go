package server_test

import (
	"context"
	"fmt"
	"net/http"
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
	counted := &stalled{Driver: store.Join()}
	town := &town{t, store, [2]string{listen(t, counted, ends(gone))}}
	town.take("k", "holder")
	first := town.callFor(0, "k", "w", time.Minute, 30*time.Second)
	town.await("k", window, "queued", queueOf(1))
	before := counted.asked.Load()
	second := town.callFor(0, "k", "w", time.Minute, 30*time.Second)
	town.await("k", window, "asked for by the second, too", func(driver.Snapshot) bool { return counted.asked.Load() > before })
	first.die()
	soon(t, "the first request has ended", gone)
	second.die()
	soon(t, "the second request has ended", gone)
	town.await("k", window, "kept for ticketMs", func(s driver.Snapshot) bool {
		return len(s.Waiters) == 1 && s.Waiters[0].Remaining > 16*time.Second
	})
}

// givesBack sends the lease id to did when a place has been given back, or kept.
type givesBack struct {
	*stalled
	did chan string
}

func (s *givesBack) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	defer func() { s.did <- ref.ID }()
	return s.stalled.Release(ctx, ref)
}

func (s *givesBack) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	defer func() { s.did <- refs[0].ID }()
	s.stalled.Renew(ctx, refs, each)
}

// A client with a place and an address for hints asks again, and a proxy cuts the connection
// while the service asks the store.
func TestVanish_HR_E11_APlaceWithAnAddressIsKeptWhenALaterRequestIsCut(t *testing.T) {
	store, gone := memdriver.New(), make(chan string, 4)
	entered, gate := make(chan struct{}), make(chan struct{})
	asked := 0
	slow := &givesBack{did: make(chan string, 4)}
	slow.stalled = &stalled{Driver: store.Join(), there: func(req driver.Request) error {
		if asked++; asked > 2 && req.ID == "w" {
			entered <- struct{}{}
			<-gate
		}
		return nil
	}}
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
	soon(t, "what is given up is given back", slow.did)
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
