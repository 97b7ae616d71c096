package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// answer sends a request, expects the status want, and decodes the body.
func answer(t *testing.T, method, url, body string, want int, into any) {
	t.Helper()
	status, text := ask(t, method, url, body)
	if status != want {
		t.Fatalf("%s %s %s: %d %s, want %d", method, url, body, status, text, want)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// grant is the part of an answer that describes a lease.
type grant struct {
	LeaseID, State          string
	Token                   int64
	Again                   bool
	Position                int
	TTLMs, RemainingMs      int64
	TicketMs, RetryAfterMs  int64
	Type, Title, Detail     string
	Holders                 []struct{ LeaseID, Owner string }
	FreeInMs, Status, Holds int
}

func TestLease_H2_TheSameIdIsTheSameLeaseAlsoAfterARestart(t *testing.T) {
	store := memdriver.New()
	first := open(t, store.Join())
	l, base := network.listen()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = first.Serve(l, nil)
	}()
	const body = `{"leaseId":"a","ttlMs":60000}`
	var one, two, three grant
	answer(t, "POST", base+"/v1/locks/k", body, 201, &one)
	answer(t, "POST", base+"/v1/locks/k", body, 200, &two)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	url := listenInMemory(t, store.Join()) + "/v1/locks/k"
	answer(t, "POST", url, body, 200, &three)
	if one.Again || !two.Again || !three.Again || one.Token == 0 || one.Token != two.Token || one.Token != three.Token {
		t.Errorf("%+v, %+v, %+v", one, two, three)
	}
	must(t, 204, "DELETE", url+"/leases/a", "")
	var next grant
	answer(t, "POST", url, `{"leaseId":"b"}`, 201, &next)
	if next.Token <= one.Token {
		t.Errorf("token %d after %d", next.Token, one.Token)
	}
}

// A client whose wait has ended asks again, and has kept its place.
func TestWait_ThatIsOverKeepsThePlace(t *testing.T) {
	towns(t, func(t *town) {
		t.take("k", "holder")
		var g grant
		answer(t.T, "POST", t.url(0, "/v1/locks/k"), `{"leaseId":"a","waitMs":50}`, 202, &g)
		if g.State != "queued" || g.Position != 1 || g.TicketMs != 3000 || g.RetryAfterMs != 0 {
			t.Errorf("%+v", g)
		}
		g = grant{} // asked again, so that the place lasts until the end of the test
		answer(t.T, "POST", t.url(0, "/v1/locks/k"), `{"leaseId":"a","waitMs":50,"ticketMs":60000}`, 202, &g)
		if g.State != "queued" || g.Position != 1 || g.TicketMs != 60000 || g.RetryAfterMs != 0 {
			t.Errorf("%+v", g)
		}
		// A client that cannot hold a request open asks again and again.
		answer(t.T, "POST", t.url(1, "/v1/locks/k"), `{"leaseId":"a","ticketMs":60000}`, 202, &g)
		if g.Position != 1 || g.RetryAfterMs <= 0 || g.RetryAfterMs > 60000/2 {
			t.Errorf("%+v", g)
		}
		// If no place is to be kept, the end of the wait is a refusal, and removes the place.
		g = grant{}
		answer(t.T, "POST", t.url(0, "/v1/locks/k"), `{"leaseId":"c","waitMs":50,"ticketMs":0}`, 409, &g)
		if !strings.HasSuffix(g.Type, "#held") || g.RetryAfterMs <= 0 {
			t.Errorf("%+v", g)
		}
		t.await("k", window, "left", queueOf(1))
		b := t.call(1, "k", "b")
		t.await("k", window, "queued", queueOf(2))
		// The lock is freed while no request waits for a: b does not get it.
		t.release("k", "holder")
		answer(t.T, "POST", t.url(1, "/v1/locks/k"), `{"leaseId":"a","waitMs":5000}`, 201, &g)
		t.release("k", "a")
		if status, text := b.answer(); status != 201 {
			t.Errorf("%d %s", status, text)
		}
	})
}

func TestWait_OfOneWhoseLeaseIsBrokenIsToldWhy(t *testing.T) {
	towns(t, func(t *town) {
		t.take("k", "holder")
		p := t.call(1, "k", "w")
		t.await("k", window, "queued", queueOf(1))
		must(t.T, 200, "POST", t.url(0, "/v1/locks/k:break"), `{"leaseId":"w","reason":"a test"}`)
		status, text := p.answer()
		if status != 410 || !strings.Contains(text, "#broken") || !strings.Contains(text, `"reason":"a test"`) {
			t.Errorf("%d %s", status, text)
		}
	})
}

// blind is a store that keeps no queue and has no hints.
type blind struct {
	store driver.Driver
	asked chan struct{} // receives a value after each answer to an acquire, if there is room
}

func (b blind) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.TicketTTL, req.HintAddress = 0, ""
	reply, err := b.store.Acquire(ctx, req)
	select {
	case b.asked <- struct{}{}:
	default:
	}
	return reply, err
}

func (b blind) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	b.store.Renew(ctx, refs, each)
}

func (b blind) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	return b.store.Release(ctx, ref)
}

func (b blind) Close() error { return b.store.Close() }

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
	town := &town{t, store, [2]string{base, listenInMemory(t, store.Join())}}
	town.take("k", "holder")
	keeps := town.call(0, "k", "keeps")
	town.await("k", window, "queued", queueOf(1))
	leaves := make(chan exchange, 1)
	go func() {
		status, text := ask(t, "POST", town.url(0, "/v1/locks/k"), `{"leaseId":"leaves","waitMs":60000,"ticketMs":0}`)
		leaves <- exchange{status: status, body: text}
	}()
	town.await("k", window, "queued", queueOf(2))
	events, err := http.Get(town.url(0, "/v1/events")) //nolint:noctx // the service ends it
	if err != nil {
		t.Fatal(err)
	}
	operation := make(chan exchange, 1)
	go func() { operation <- execute(t, town.url(0, "/api/locks/simple/job")) }()
	<-g.inside

	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	status, text := keeps.answer()
	if status != 202 || !strings.Contains(text, `"position":1`) || !strings.Contains(text, `"retryAfterMs":1000`) {
		t.Errorf("%d %s", status, text)
	}
	if got := <-leaves; got.status != 503 || !strings.Contains(got.body, "#draining") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if text := read(t, events); !strings.Contains(text, "event: ready") {
		t.Errorf("%q", text)
	}
	var lease grant
	answer(t, "PUT", town.url(0, "/v1/locks/k/leases/holder"), `{"ttlMs":60000}`, 200, &lease)
	again := town.call(1, "k", "keeps") // at another service
	close(g.open)
	if got := <-operation; got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if err := <-ended; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	must(t, 204, "DELETE", town.url(1, "/v1/locks/k/leases/holder"), "")
	if status, text := again.answer(); status != 201 {
		t.Errorf("%d %s", status, text)
	}
}
