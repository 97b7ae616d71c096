package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
)

// halt is a place at which a call of the store waits.
type halt struct {
	reached, over chan struct{}
	open          func() // lets all calls go on
}

func newHalt(t *testing.T) *halt {
	h := &halt{reached: make(chan struct{}, 8), over: make(chan struct{})}
	h.open = sync.OnceFunc(func() { close(h.over) })
	t.Cleanup(h.open)
	return h
}

func (h *halt) wait() {
	h.reached <- struct{}{}
	<-h.over
}

// acquire makes the acquires of a store wait at the halt. They then fail with err, unless it is nil.
func (h *halt) acquire(err error) func(driver.Driver) *intercept.Driver {
	return func(store driver.Driver) *intercept.Driver {
		return acquires(store, func() error { h.wait(); return err })
	}
}

// soon returns the next value of c, and fails the test after a minute.
func soon[T any](t testing.TB, what string, c <-chan T) (v T) {
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
			stop := newHalt(t)
			var late atomic.Bool
			town := newTown(t, listen, func(store driver.Driver) *intercept.Driver {
				return acquires(store, func() error {
					if late.Load() {
						stop.wait()
					}
					return nil
				})
			})
			town.call(service, "w").granted()
			late.Store(true)
			town.call(0, "w").leave(stop)
			town.holds("w")
			town.release("w")
		})
	}
}

// Two services keep a ticket: the client had to change from one to the other.
func TestVanish_HR_A5_AnAbandonedWaitEndsNothingThatItsClientWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := newHalt(t)
		var held atomic.Bool
		var asked atomic.Int64
		town := newTown(t, listenInMemory, func(store driver.Driver) *intercept.Driver {
			slow := after(store, func(*message) error { asked.Add(1); return nil })
			slow.Change = func(_ *message, reply *driver.Reply) {
				if reply.State == driver.Granted && held.CompareAndSwap(false, true) {
					stop.wait()
				}
			}
			return slow
		})
		town.take("holder")
		first := town.call(0, "w")
		town.queued(1)
		second := town.call(1, "w")
		for before := asked.Load(); asked.Load() < before+2; time.Sleep(time.Millisecond) {
			// The first service gives the ticket up with each of them.
		}
		town.release("holder")
		soon(t, "the first service is granted the lock", stop.reached)
		second.granted()
		first.die()
		synctest.Wait() // the service has seen the end of the connection
		stop.open()
		soon(t, "the first request has ended", town.gone)
		town.holds("w")
	})
}

// The end of the connection follows the request, and is not read yet.
func TestVanish_HR_A5_NothingIsAskedForAClientThatHasGone(t *testing.T) {
	var asked atomic.Int64
	gone := make(chan int, 1)
	s := open(t, acquires(memdriver.New(), func() error { asked.Add(1); return nil }),
		server.WithObserver(func(_ *http.Request, x *server.Exchange) { gone <- x.Status }))
	l := socket(t)
	town := &town{T: t, base: [2]string{"http://" + l.Addr().String()}}
	town.call(0, "w").die()
	go func() { _ = s.Serve(l, nil) }()
	if status, n := soon(t, "the request has ended", gone), asked.Load(); status != 0 || n != 0 {
		t.Errorf("answered %d, and the store was asked %d times", status, n)
	}
}

func TestVanish_HR_A5_NothingIsAskedAgainForAClientThatHasGone(t *testing.T) {
	stop := newHalt(t)
	newTown(t, listen, stop.acquire(errors.New("no answer"))).call(0, "w").leave(stop)
	if n := len(stop.reached); n != 0 {
		t.Errorf("the store was asked %d times more", n)
	}
}

// The store does not answer for longer than one try of the undo.
func TestVanish_HR_A7_IsUndoneUntilTheStoreAnswers(t *testing.T) {
	stop := newHalt(t)
	var releases atomic.Int64
	town := newTown(t, listen, func(store driver.Driver) *intercept.Driver {
		return stop.acquire(nil)(before(store, func(_ context.Context, m *message) error {
			if m.Verb == intercept.Release && releases.Add(1) <= 3 {
				return errors.New("no answer")
			}
			return nil
		}))
	})
	town.call(0, "w").leave(stop)
	town.free()
}

// A proxy has sent a long poll twice, and cuts both connections, one after the other.
func TestVanish_HR_E11_APlaceIsKeptWhenAllConnectionsOfItAreCut(t *testing.T) {
	var asked atomic.Int64
	town := newTown(t, listen, func(store driver.Driver) *intercept.Driver {
		return after(store, func(*message) error { asked.Add(1); return nil })
	})
	town.take("holder")
	first := town.callFor(0, time.Minute, 30*time.Second)
	town.queued(1)
	before := asked.Load()
	second := town.callFor(0, time.Minute, 30*time.Second)
	eventually(t, func() bool { return asked.Load() > before }) // by the second, too
	for _, p := range []*phone{first, second} {
		p.die()
		soon(t, "the request has ended", town.gone)
	}
	town.keepsPlace()
}

// A client with a place and an address for hints asks again, and a proxy cuts the connection
// while the service asks the store.
func TestVanish_HR_E11_APlaceWithAnAddressIsKeptWhenALaterRequestIsCut(t *testing.T) {
	stop, did := newHalt(t), make(chan string, 4)
	town := newTown(t, listen, func(store driver.Driver) *intercept.Driver {
		return stop.acquire(nil)(after(store, func(m *message) error {
			if m.Verb == intercept.Renew || m.Verb == intercept.Release {
				did <- m.ID()
			}
			return nil
		}))
	})
	town.take("holder")
	var ears struct{ Address string }
	for stream := tune(t, town.url(0, "/v1/events")); ears.Address == ""; {
		stream.hear("ready", &ears)
	}
	body := fmt.Sprintf(`{"leaseId":"w","ttlMs":60000,"ticketMs":30000,"notify":%q}`, ears.Address)
	must(t, 202, "POST", town.url(1, "/v1/locks/k"), body)
	town.send(0, "POST", "/v1/locks/k", body).leave(stop)
	soon(t, "what is given up is given back", did)
	town.keepsPlace()
}

// The wait of a long poll without a ticket has ended, and it leaves the queue while its client,
// whose connection a proxy has cut, asks again.
func TestWait_HR_A5_WhoLeavesEndsNothingThatItsClientWasTold(t *testing.T) {
	stop, seen := newHalt(t), make(chan struct{}, 8)
	town := newTown(t, listen, func(store driver.Driver) *intercept.Driver {
		return before(store, func(_ context.Context, m *message) error {
			if m.Verb == intercept.Release && m.ID() == "w" {
				stop.wait()
			}
			return nil
		})
	}, server.WithObserver(func(_ *http.Request, x *server.Exchange) {
		if x.Operation() == "acquire" && x.LeaseID == "w" {
			seen <- struct{}{}
		}
	}))
	town.take("holder")
	first := town.callFor(0, 50*time.Millisecond, 0)
	soon(t, "the first request leaves", stop.reached)
	town.release("holder")
	second := town.callFor(0, time.Minute, 0)
	select {
	case <-seen: // the second request is answered while the first leaves
	case <-time.After(200 * time.Millisecond): // the second request waits until the first has left
	}
	stop.open()
	first.answer()
	second.granted()
	town.holds("w")
}

// undoing returns a town whose first service waits at stop before each release of the lease w, sends
// to left after it, and calls granted at each grant.
func undoing(t *testing.T, stop *halt, granted func()) (town *town, left chan struct{}) {
	left = make(chan struct{}, 8)
	return newTown(t, listen, func(store driver.Driver) *intercept.Driver {
		d := intercept.New(store, func(ctx context.Context, m *message, send sender) error {
			if m.Verb != intercept.Release || m.ID() != "w" {
				return send(ctx)
			}
			stop.wait()
			defer func() { left <- struct{}{} }()
			return send(ctx)
		})
		d.Change = func(_ *message, reply *driver.Reply) {
			if reply.State == driver.Granted {
				granted()
			}
		}
		return d
	}), left
}

// A client whose connection broke has no answer to its request. It renews its lease by another
// connection, successfully, while the first service is about to give the lease back.
func TestVanish_HR_A5_ALeaseThatItsClientHasRenewedIsNotGivenBack(t *testing.T) {
	const byVisit = "by its visit"
	for name, r := range map[string]struct{ method, path, body string }{
		"by itself":  {"PUT", "/v1/locks/k/leases/w", `{"ttlMs":60000}`},
		byVisit:      {"PUT", "/v1/locks/k/leases/w", `{"ttlMs":60000,"visit":"client"}`},
		"in a batch": {"POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"w","ttlMs":60000}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			stop, answer := newHalt(t), newHalt(t)
			town, left := undoing(t, stop, answer.wait)
			first := town.send(0, "POST", "/v1/locks/k", `{"leaseId":"w","ttlMs":60000,"waitMs":60000,"visit":"client"}`)
			soon(t, "the lock is granted", answer.reached)
			first.die()
			answer.open()
			soon(t, "the first service gives it back", stop.reached)
			must(t, 200, r.method, town.url(1, r.path), r.body)
			stop.open()
			soon(t, "the first service has given it back", left)
			town.holds("w")
			got := ask(t, "DELETE", town.url(1, "/v1/locks/k/leases/w?visit=client"), "")
			if (got.status == 204) != (name == byVisit) {
				t.Errorf("ended by the client's visit: %d %s", got.status, got.body)
			}
		})
	}
}

// A place in the queue that was renewed is kept as well.
func TestVanish_HR_A5_APlaceThatItsClientHasRenewedIsNotGivenUp(t *testing.T) {
	stop := newHalt(t)
	town, left := undoing(t, stop, func() {})
	town.take("holder")
	first := town.call(0, "w")
	town.queued(1)
	first.die()
	soon(t, "the first service gives the place up", stop.reached)
	must(t, 202, "PUT", town.url(1, "/v1/locks/k/leases/w"), `{"ttlMs":60000,"ticketMs":60000}`)
	stop.open()
	soon(t, "the first service has given it up", left)
	town.queued(1)
}
