package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// ends sends the lease id of each request whose client had gone, at its end.
func ends(into chan<- string) server.Option {
	return server.WithObserver(func(_ *http.Request, x *server.Exchange) {
		if x.Status == 0 {
			into <- x.LeaseID
		}
	})
}

// soon returns the next value of c, and fails the test after a minute.
func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s: not within a minute", what)
	}
	return v
}

// A request that reaches a service or the store late may be of a client that has asked again
// since, and has received its lease.
func TestVanish_HR_A5_ALateRequestEndsNothingThatItsClientWasTold(t *testing.T) {
	for service, by := range []string{"the same service", "another service"} {
		t.Run(by, func(t *testing.T) {
			store := memdriver.New()
			entered, gate, gone := make(chan struct{}), make(chan struct{}), make(chan string, 1)
			var late atomic.Bool
			slow := acquires(store.Join(), func(string) error {
				if late.Load() {
					entered <- struct{}{}
					<-gate
				}
				return nil
			})
			town := &town{t, store, [2]string{listen(t, slow, ends(gone)), listen(t, store.Join())}}
			if status, text := town.call(service, "k", "w").answer(); status != 201 {
				t.Fatal(status, text)
			}
			late.Store(true)
			first := town.call(0, "k", "w")
			soon(t, "the late request is sent to the store", entered)
			first.die()
			close(gate)
			soon(t, "the late request has ended", gone)
			if snap := town.look("k"); !heldBy("w")(snap) {
				t.Errorf("the reported lease is gone: %+v", snap)
			}
			town.release("k", "w")
		})
	}
}

// Two services keep a ticket: the client had to change from one to the other.
func TestVanish_HR_A5_AnAbandonedWaitEndsNothingThatItsClientWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		granted, gate, gone := make(chan struct{}), make(chan struct{}), make(chan string, 1)
		var held atomic.Bool
		var asked atomic.Int64
		slow := answeredBy(store.Join(), func(_ context.Context, _, _ string, reply driver.Reply) error {
			if reply.State == driver.Granted && held.CompareAndSwap(false, true) {
				close(granted)
				<-gate
			}
			asked.Add(1)
			return nil
		})
		town := &town{t, store, [2]string{listenInMemory(t, slow, ends(gone)), listenInMemory(t, store.Join())}}
		must(t, 201, "POST", town.url(1, "/v1/locks/k"), `{"leaseId":"holder"}`)
		first := town.call(0, "k", "w")
		town.await("k", window, "queued", queueOf(1))
		second := town.call(1, "k", "w")
		for before := asked.Load(); asked.Load() < before+2; time.Sleep(time.Millisecond) {
			// The first service gives the ticket up with each of them.
		}
		must(t, 204, "DELETE", town.url(1, "/v1/locks/k/leases/holder"), "")
		soon(t, "the first service is granted the lock", granted)
		if status, text := second.answer(); status != 200 && status != 201 {
			t.Fatal(status, text)
		}
		first.die()
		synctest.Wait() // the service has seen the end of the connection
		close(gate)
		soon(t, "the first request has ended", gone)
		if snap := town.look("k"); !heldBy("w")(snap) {
			t.Errorf("the reported lease is gone: %+v", snap)
		}
	})
}

// The end of the connection follows the request, and is not read yet.
func TestVanish_HR_A5_NothingIsAskedForAClientThatHasGone(t *testing.T) {
	var asked atomic.Int64
	gone := make(chan string, 1)
	store := acquires(memdriver.New(), func(string) error { asked.Add(1); return nil })
	s := open(t, store, ends(gone))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	town := &town{t, store, [2]string{"http://" + l.Addr().String()}}
	town.call(0, "k", "w").die()
	go func() { _ = s.Serve(l, nil) }()
	soon(t, "the request has ended", gone)
	if n := asked.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestVanish_HR_A5_NothingIsAskedAgainForAClientThatHasGone(t *testing.T) {
	entered, gate, gone := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	var asked atomic.Int64
	store := acquires(memdriver.New(), func(string) error {
		asked.Add(1)
		entered <- struct{}{}
		<-gate
		return errors.New("no answer")
	})
	town := &town{t, store, [2]string{listen(t, store, ends(gone))}}
	p := town.call(0, "k", "w")
	soon(t, "the store is asked", entered)
	p.die()
	close(gate)
	soon(t, "the request has ended", gone)
	if n := asked.Load(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
}

// A client that has two requests under way receives both answers, with one lease, from one
// service or two.
func TestWait_HR_E9_RequestsForOneLeaseAreAllAnswered(t *testing.T) {
	towns(t, func(t *town) {
		for second := range 2 {
			key := fmt.Sprint("k", second)
			t.take(key, "holder")
			first := t.call(0, key, "w")
			t.await(key, window, "queued", queueOf(1))
			later := t.call(second, key, "w")
			t.release(key, "holder")
			a, textA := first.answer()
			b, textB := later.answer()
			if a+b != 200+201 {
				t.Errorf("service %d: answered %d %s and %d %s, want one 201 and one 200", second, a, textA, b, textB)
			}
			if snap := t.look(key); !heldBy("w")(snap) {
				t.Errorf("%+v", snap)
			}
			t.release(key, "w")
		}
	})
}

// A proxy has cut the connection of a long poll.
func TestVanish_HR_E11_APlaceIsKeptForAsLongAsWasSaid(t *testing.T) {
	towns(t, func(t *town) {
		t.take("k", "holder")
		cut := t.callFor(0, "k", "w", time.Minute, 30*time.Second)
		t.await("k", window, "queued", queueOf(1))
		other := t.call(1, "k", "other")
		t.await("k", window, "queued", queueOf(2))
		cut.die()
		t.await("k", window, "kept for ticketMs", func(s driver.Snapshot) bool {
			return len(s.Waiters) == 2 && s.Waiters[0].ID == "w" && s.Waiters[0].Remaining > 16*time.Second
		})
		again := t.call(1, "k", "w")
		t.release("k", "holder")
		if status, text := again.answer(); status != 201 {
			t.Errorf("%d %s", status, text)
		}
		t.release("k", "w")
		if status, text := other.answer(); status != 201 {
			t.Errorf("%d %s", status, text)
		}
	})
}

// The store does not answer for longer than one try of the undo.
func TestVanish_HR_A7_IsUndoneUntilTheStoreAnswers(t *testing.T) {
	entered, gate, gone := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	var releases atomic.Int64
	store := &hooked{memdriver.New(), func(_ context.Context, verb, _ string) error {
		switch {
		case verb == "acquire":
			entered <- struct{}{}
			<-gate
		case verb == "release" && releases.Add(1) <= 3:
			return errors.New("no answer")
		}
		return nil
	}}
	town := &town{t, store, [2]string{listen(t, store, ends(gone))}}
	p := town.call(0, "k", "w")
	soon(t, "the store is asked", entered)
	p.die()
	close(gate)
	soon(t, "the request has ended", gone)
	town.await("k", window, "free", func(snap driver.Snapshot) bool { return len(snap.Holders) == 0 })
}

// A job that keeps its lock closed for an hour may have a short lease. The maximum TTL guards
// against clients that died, and a client that releases is alive. A lock delay begins after the
// loss of a lease, so it is bounded, and refused before the lock is taken.
func TestRelease_HR_D8_MayKeepTheLockClosedAndForbidTheIDForLongerThanLeasesLive(t *testing.T) {
	store := memdriver.New()
	town := &town{t, store, [2]string{listen(t, store, server.WithMaxTTL(10*time.Second))}}
	lock := town.url(0, "/v1/locks/k")
	if status, text := ask(t, "POST", lock, `{"leaseId":"w","lockDelayMs":10001}`); status != 400 {
		t.Errorf("a lock delay: %d %s", status, text)
	}
	must(t, 201, "POST", lock, `{"leaseId":"w"}`)
	if status, text := ask(t, "DELETE", lock+"/leases/w?keepMs=86400001", ""); status != 400 {
		t.Errorf("kept closed for more than a day: %d %s", status, text)
	}
	if status, text := ask(t, "DELETE", lock+"/leases/w?keepMs=86400000&forbidMs=60000", ""); status != 204 {
		t.Errorf("kept closed for a day: %d %s", status, text)
	}
	if reply, err := store.Acquire(t.Context(), driver.Request{Key: "k", ID: "x", TTL: time.Second}); err != nil || reply.State != driver.Busy || reply.RetryAfter < 23*time.Hour {
		t.Errorf("afterwards: %+v, %v", reply, err)
	}
}
