package server_test

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
)

// latent is a store whose subscriptions have no address until up is set.
type latent struct {
	*memdriver.Driver
	up atomic.Bool
}

func (l *latent) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	sub, err := l.Driver.Watch(f)
	return &latentSubscription{sub, l}, err
}

type latentSubscription struct {
	driver.Subscription
	l *latent
}

func (s *latentSubscription) Address() string {
	if !s.l.up.Load() {
		return ""
	}
	return s.Subscription.Address()
}

func TestReady_HR_G5_NotBeforeTheServiceHearsWhoseTurnItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &latent{Driver: memdriver.New()}
		_, base := serve(t, store, server.WithStoreTimeout(time.Minute))
		refused(t, ask(t, "GET", base+"/readyz", ""), server.Unavailable)
		store.up.Store(true)
		answered(t, 200, ask(t, "GET", base+"/readyz", ""))
	})
}

func TestReady_HR_G5_AStoreThatDeliversNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base := serve(t, &latent{Driver: memdriver.New()}, server.WithStoreTimeout(time.Second))
		time.Sleep(20 * time.Second)
		must(t, 200, "GET", base+"/readyz", "")
		answered(t, 201, ask(t, "POST", base+"/v1/locks/k", `{"notify":"mem-1"}`))
	})
}

// The address comes from another replica, which was started earlier.
func TestEvents_HR_G5_AServiceThatHasJustStartedKeepsAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memdriver.New()
		store := &latent{Driver: shared.Join()}
		_, base := serve(t, store, server.WithStoreTimeout(time.Minute))
		granted := make(chan string, 1)
		sub, err := shared.Watch(func(h driver.Hint) {
			if h.Kind == driver.HintGranted {
				granted <- h.ID
			}
		})
		noErr(t, err)
		defer sub.Close()
		ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"holder"}`)
		queued := make(chan exchange, 1)
		go func() {
			queued <- ask(t, "POST", base+"/v1/locks/k", fmt.Sprintf(`{"leaseId":"a","ticketMs":30000,"notify":%q}`, sub.Address()))
		}()
		synctest.Wait() // the service has got the address
		store.up.Store(true)
		answered(t, 202, soon(t, "the ticket", queued))
		ask(t, "DELETE", base+"/v1/locks/k/leases/holder", "")
		if id := soon(t, "the hand-over", granted); id != "a" {
			t.Errorf("granted to %s", id)
		}
	})
}

func TestEvents_HR_E4_NothingIsReadyBeforeThereIsAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &latent{Driver: memdriver.New()}
		_, base := serve(t, store)
		r := tune(t, base+"/v1/events?name=k")
		var lock wire.Lock
		r.hear("lock", &lock) // the stream is open
		store.up.Store(true)
		var ready wire.Ready
		if r.hear("ready", &ready); ready.Address == "" {
			t.Error("ready without an address")
		}
	})
}

func TestOperation_HR_F15_TheTimeForTheStoreBoundsEveryAnswer(t *testing.T) {
	const each = 300 * time.Millisecond
	for _, p := range patterns {
		bubble(t, p, func(t *testing.T) {
			_, base := serve(t, mute(intercept.Acquire), server.WithStoreTimeout(each))
			began := time.Now()
			got := ask(t, "POST", base+"/api/locks/"+p+"/"+p, "")
			// Without the store timeout the library would try for ten seconds.
			if took := time.Since(began); got.status != 503 && got.status != 504 || took > 9*time.Second {
				t.Errorf("%d %s after %v", got.status, got.body, took)
			}
		})
	}
}

// A browser connects again without code of the page, and sends the id of the last event.
func TestEvents_HR_E9_AStreamGoesOnBehindTheLastEvent(t *testing.T) {
	_, base := serve(t, memdriver.New())
	stream := tune(t, base+"/v1/events")
	last, name, data := stream.next()
	var ready wire.Ready
	if err := json.Unmarshal([]byte(data), &ready); err != nil || name != "ready" {
		t.Fatal(name, data, err)
	}
	for i := range 3 {
		lock := fmt.Sprintf("%s/v1/locks/k%d", base, i)
		ask(t, "POST", lock, `{"leaseId":"holder"}`)
		must(t, 202, "POST", lock, fmt.Sprintf(`{"leaseId":"w%d","ticketMs":30000,"notify":%q}`, i, ready.Address))
	}
	stream.cancel() // misses the next events
	for i := range 3 {
		ask(t, "DELETE", fmt.Sprintf("%s/v1/locks/k%d/leases/holder", base, i), "")
	}
	stream = tune(t, base+"/v1/events", "Last-Event-ID", last)
	seen := make(map[string]bool)
	for len(seen) < 3 {
		id, name, data := stream.next()
		var hint wire.Hint
		if err := json.Unmarshal([]byte(data), &hint); err != nil || id == "" || id == last || name == "ready" {
			t.Fatal(id, name, data, err)
		}
		if name == "granted" {
			seen[hint.LeaseID] = true
		}
	}
	stream = tune(t, base+"/v1/events", "Last-Event-ID", "somebody-elses.1")
	if _, name, _ := stream.next(); name != "ready" {
		t.Errorf("an unknown stream begins with %s", name)
	}
}

// A place in a queue is kept also for a client that does not wait for the answer, and after a long
// poll that has ended or was cut.
func TestQuota_HR_E9_APlaceCountsAsARequestThatWaits(t *testing.T) {
	for _, wait := range []int{0, 5} {
		_, base := serve(t, memdriver.New(), server.WithMaxWaiters(2, 2))
		ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"holder"}`)
		take := func(id string) exchange {
			return ask(t, "POST", base+"/v1/locks/k", fmt.Sprintf(`{"leaseId":%q,"waitMs":%d,"ticketMs":60000}`, id, wait))
		}
		for range 3 { // the later requests are for the same places
			for _, id := range []string{"a", "b"} {
				answered(t, 202, take(id))
			}
		}
		refused(t, take("c"), server.TooMany)
		if n := waiters(t, base); n != 2 {
			t.Errorf("the metrics count %v waiters, want 2", n)
		}
		ask(t, "DELETE", base+"/v1/locks/k/leases/a", "")
		answered(t, 202, take("c"))
		ask(t, "POST", base+"/v1/locks/k:break", `{"leaseId":"b","reason":"stuck"}`)
		answered(t, 202, take("d"))
	}
}

// Balancers and kube-proxy still send clients for a while after a pod has begun to end.
func TestReady_SaysNoBeforeRequestsAreRefused(t *testing.T) {
	s, base := serve(t, memdriver.New())
	s.Leave()
	refused(t, ask(t, "GET", base+"/readyz", ""), server.Draining)
	for _, step := range [][3]string{
		{"POST", "/v1/locks/k", `{"leaseId":"a"}`},
		{"PUT", "/v1/locks/k/leases/a", ""},
		{"GET", "/livez", ""},
		{"DELETE", "/v1/locks/k/leases/a", ""},
	} {
		if got := ask(t, step[0], base+step[1], step[2]); got.status >= 300 {
			t.Errorf("%s: %d %s", got, got.status, got.body)
		}
	}
}
