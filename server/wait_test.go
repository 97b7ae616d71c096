package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// grant is the part of an answer that describes a lease.
type grant struct {
	State, Type                      string
	Token                            int64
	Again                            bool
	Position, TicketMs, RetryAfterMs int
}

// A client whose wait has ended asks again, and has kept its place.
func TestWait_ThatIsOverKeepsThePlace(t *testing.T) {
	towns(t, func(t *town) {
		t.take("holder")
		var g grant
		answer(t, "POST", t.url(0, "/v1/locks/k"), `{"leaseId":"a","waitMs":50}`, 202, &g)
		if g.State != "queued" || g.Position != 1 || g.TicketMs != 3000 || g.RetryAfterMs != 0 {
			t.Errorf("%+v", g)
		}
		g = grant{} // asked again, so that the place lasts until the end of the test
		answer(t, "POST", t.url(0, "/v1/locks/k"), `{"leaseId":"a","waitMs":50,"ticketMs":60000}`, 202, &g)
		if g.State != "queued" || g.Position != 1 || g.TicketMs != 60000 || g.RetryAfterMs != 0 {
			t.Errorf("%+v", g)
		}
		// A client that cannot hold a request open asks again and again.
		answer(t, "POST", t.url(1, "/v1/locks/k"), `{"leaseId":"a","ticketMs":60000}`, 202, &g)
		if g.Position != 1 || g.RetryAfterMs <= 0 || g.RetryAfterMs > 60000/2 {
			t.Errorf("%+v", g)
		}
		// If no place is to be kept, the end of the wait is a refusal, and removes the place.
		g = grant{}
		answer(t, "POST", t.url(0, "/v1/locks/k"), `{"leaseId":"c","waitMs":50,"ticketMs":0}`, 409, &g)
		if !strings.HasSuffix(g.Type, "#held") || g.RetryAfterMs <= 0 {
			t.Errorf("%+v", g)
		}
		t.queued(1)
		b := t.call(1, "b")
		t.queued(2)
		// The lock is freed while no request waits for a: b does not get it.
		t.release("holder")
		answer(t, "POST", t.url(1, "/v1/locks/k"), `{"leaseId":"a","waitMs":5000}`, 201, &g)
		t.release("a")
		answered(t, 201, b.answer())
	})
}

func TestWait_OfOneWhoseLeaseIsBrokenIsToldWhy(t *testing.T) {
	towns(t, func(t *town) {
		t.take("holder")
		p := t.call(1, "w")
		t.queued(1)
		must(t, 200, "POST", t.url(0, "/v1/locks/k:break"), `{"leaseId":"w","reason":"a test"}`)
		got := p.answer()
		if refused(t, got, server.Broken); !strings.Contains(got.body, `"reason":"a test"`) {
			t.Errorf("no reason: %s", got.body)
		}
	})
}

// blind is a store that keeps no queue and has no hints.
type blind struct {
	driver.Driver
	asked chan struct{} // receives a value after each answer to an acquire, if there is room
}

func (b blind) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.TicketTTL, req.HintAddress = 0, ""
	reply, err := b.Driver.Acquire(ctx, req)
	select {
	case b.asked <- struct{}{}:
	default:
	}
	return reply, err
}

func TestWait_OnAStoreWithoutAQueueIsByAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		asked := make(chan struct{}, 1)
		base := listenInMemory(t, blind{store.Join(), asked})
		var g grant
		answer(t, "POST", base+"/v1/locks/k", `{"leaseId":"a","ttlMs":60000}`, 201, &g)
		answer(t, "POST", base+"/v1/locks/k", `{"leaseId":"b","waitMs":20}`, 409, &g)
		<-asked
		go func() {
			<-asked // b waits, and the service gets no hint of the release
			if reply, err := store.Release(context.Background(), driver.Ref{Key: "k", ID: "a"}); err != nil || reply.State != driver.Released {
				t.Errorf("%+v, %v", reply, err)
			}
		}()
		answer(t, "POST", base+"/v1/locks/k", `{"leaseId":"b","waitMs":20000}`, 201, &g)
		answer(t, "GET", base+"/v1/locks/k", "", 501, &g)
		answer(t, "GET", base+"/v1/locks", "", 501, &g)
		answer(t, "POST", base+"/v1/locks/k:break", `{"leaseId":"b","reason":"x"}`, 501, &g)
	})
}

// TestDrain_H7_WaitersAreSentOnAndNothingIsLost: renewals are answered until the shutdown,
// waiters keep their place for another service, and streams end.
func TestDrain_H7_WaitersAreSentOnAndNothingIsLost(t *testing.T) {
	store := memdriver.New()
	g := newGate()
	s := open(t, store.Join(), server.WithOperation(g.operation()))
	l, base := network.listen()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, nil) }()
	town := &town{T: t, store: store, base: [2]string{base, listenInMemory(t, store.Join())}}
	town.take("holder")
	keeps := town.call(0, "keeps")
	town.queued(1)
	leaves := make(chan exchange, 1)
	go func() {
		leaves <- ask(t, "POST", town.url(0, "/v1/locks/k"), `{"leaseId":"leaves","waitMs":60000,"ticketMs":0}`)
	}()
	town.queued(2)
	events, err := http.Get(town.url(0, "/v1/events")) //nolint:noctx // the service ends it
	noErr(t, err)
	operation := make(chan exchange, 1)
	go func() { operation <- ask(t, "POST", town.url(0, "/api/locks/simple/job"), "") }()
	<-g.inside

	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	text := answered(t, 202, keeps.answer())
	if !strings.Contains(text, `"position":1`) || !strings.Contains(text, `"retryAfterMs":1000`) {
		t.Error(text)
	}
	refused(t, <-leaves, server.Draining)
	if text := read(t, events); !strings.Contains(text, "event: ready") {
		t.Errorf("%q", text)
	}
	var lease grant
	answer(t, "PUT", town.url(0, "/v1/locks/k/leases/holder"), `{"ttlMs":60000}`, 200, &lease)
	again := town.call(1, "keeps") // at another service
	close(g.open)
	answered(t, 200, <-operation)
	if err := <-ended; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	town.release("holder")
	answered(t, 201, again.answer())
}

// A job that keeps its lock closed for an hour may have a short lease. The maximum TTL guards
// against clients that died, and a client that releases is alive. A lock delay begins after the
// loss of a lease, so it is bounded, and refused before the lock is taken.
func TestRelease_HR_D8_MayKeepTheLockClosedAndForbidTheIDForLongerThanLeasesLive(t *testing.T) {
	lock := listen(t, memdriver.New(), server.WithMaxTTL(10*time.Second)) + "/v1/locks/k"
	must(t, 400, "POST", lock, `{"leaseId":"w","lockDelayMs":10001}`)
	must(t, 201, "POST", lock, `{"leaseId":"w"}`)
	must(t, 400, "DELETE", lock+"/leases/w?keepMs=86400001", "")
	must(t, 204, "DELETE", lock+"/leases/w?keepMs=86400000&forbidMs=60000", "")
	var g grant
	answer(t, "POST", lock, `{"leaseId":"x"}`, 409, &g)
	if g.RetryAfterMs < 23*3600*1000 {
		t.Errorf("afterwards: %+v", g)
	}
}

// TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered: the error of the second try does not
// apply to the first.
func TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, then := range []error{driver.ErrUnavailable, driver.ErrInvalid, driver.ErrMismatch, driver.ErrClosed, errors.ErrUnsupported} {
			asked := 0
			_, base := serve(t, intercept.New(memdriver.New(), func(ctx context.Context, m *message, send sender) error {
				if m.Verb != intercept.Acquire {
					return send(ctx)
				}
				if asked++; asked > 1 {
					return then
				}
				_ = send(ctx)
				return errors.New("connection reset")
			}))
			refused(t, ask(t, "POST", base+"/v1/locks/k", ""), server.Unknown)
		}
	})
}

// The store refuses requests at the end of a wait. A store with a queue still has the place, and
// may hand the lock over. A store without a queue has not confirmed recently that the lock is
// held. The client may have sent another request for the lease, which ends later.
func TestAcquire_AWaitThatEndsWhileTheStoreRefusesIsUnknown(t *testing.T) {
	for _, row := range []struct {
		name          string
		queue, beside bool
		ticket        string
	}{
		{"its place is kept", true, false, "3000"},
		{"it has no place afterwards", true, false, "0"},
		{"there is no queue", false, false, "0"},
		{"next to another, its place is kept", true, true, "3000"},
		{"next to another, it has no place afterwards", true, true, "0"},
	} {
		bubble(t, row.name, func(t *testing.T) {
			enough := int32(1) // answers to acquires of the lease b
			if row.beside {
				enough = 2
			}
			var away atomic.Bool
			var given atomic.Int32
			store := intercept.New(memdriver.New(), func(ctx context.Context, m *message, send sender) error {
				if m.Verb != intercept.Close && away.Load() {
					return fmt.Errorf("%w: loading", driver.ErrUnavailable)
				}
				err := send(ctx)
				if m.Verb == intercept.Acquire && m.ID() == "b" && given.Add(1) == enough {
					away.Store(true)
				}
				return err
			})
			var asked driver.Driver = struct{ driver.Driver }{store} // without hints
			if !row.queue {
				asked = blind{store, nil}
			}
			_, base := serve(t, asked)
			must(t, http.StatusCreated, "POST", base+"/v1/locks/k", `{"leaseId":"a"}`)
			wait := func(ms string) exchange {
				return ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"b","waitMs":`+ms+`,"ticketMs":`+row.ticket+`}`)
			}
			var other sync.WaitGroup
			if row.beside {
				other.Go(func() { wait("4000") })
				eventually(t, func() bool { return given.Load() == 1 })
			}
			refused(t, wait("2500"), server.Unknown)
			away.Store(false)
			other.Wait()
		})
	}
}
