package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/server"
)

// undoer is a store whose releases of the lease w wait until open is called.
type undoer struct {
	*answering
	leaving, left chan struct{}
	open          func()
}

// newUndoer returns an undoer that calls granted with each grant.
func newUndoer(store *memdriver.Driver, granted func()) *undoer {
	gate := make(chan struct{})
	u := &undoer{leaving: make(chan struct{}, 8), left: make(chan struct{}, 8), open: sync.OnceFunc(func() { close(gate) })}
	u.answering = answeredBy(store, func(_ context.Context, verb, id string, reply driver.Reply) error {
		switch {
		case verb == "release" && id == "w":
			u.left <- struct{}{}
		case reply.State == driver.Granted:
			granted()
		}
		return nil
	})
	u.before = func(_ context.Context, verb, id string) error {
		if verb == "release" && id == "w" {
			u.leaving <- struct{}{}
			<-gate
		}
		return nil
	}
	return u
}

// A client whose connection broke has no answer to its request. It renews its lease by another
// connection, successfully, while the first service is about to give the lease back.
func TestVanish_HR_A5_ALeaseThatItsClientHasRenewedIsNotGivenBack(t *testing.T) {
	one := func(t *testing.T, url, body string) (int, string) {
		return ask(t, "PUT", url+"/v1/locks/k/leases/w", body)
	}
	for name, renew := range map[string]func(t *testing.T, url string) (int, string){
		"by itself": func(t *testing.T, url string) (int, string) { return one(t, url, `{"ttlMs":60000}`) },
		"by its visit": func(t *testing.T, url string) (int, string) {
			return one(t, url, `{"ttlMs":60000,"visit":"client"}`)
		},
		"in a batch": func(t *testing.T, url string) (int, string) {
			return ask(t, "POST", url+"/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"w","ttlMs":60000}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memdriver.New()
			granted, answer := make(chan struct{}, 8), make(chan struct{})
			slow := newUndoer(store.Join(), func() {
				granted <- struct{}{}
				<-answer
			})
			town := &town{t, store, [2]string{listen(t, slow), listen(t, store.Join())}}
			t.Cleanup(slow.open)
			first := town.post(0, "k", `{"leaseId":"w","ttlMs":60000,"waitMs":60000,"visit":"client"}`)
			soon(t, "the lock is granted", granted)
			first.die()
			close(answer)
			soon(t, "the first service gives it back", slow.leaving)
			if status, text := renew(t, town.url(1, "")); status != 200 {
				t.Fatal(status, text)
			}
			slow.open()
			soon(t, "the first service has given it back", slow.left)
			if snap := town.look("k"); !heldBy("w")(snap) {
				t.Errorf("the renewed lease is gone: %+v", snap)
			}
			if status, text := ask(t, "DELETE", town.url(1, "/v1/locks/k/leases/w?visit=client"), ""); (status == 204) != (name == "by its visit") {
				t.Errorf("ended by the client's visit: %d %s", status, text)
			}
		})
	}
}

// A place in the queue that was renewed is kept as well.
func TestVanish_HR_A5_APlaceThatItsClientHasRenewedIsNotGivenUp(t *testing.T) {
	store := memdriver.New()
	slow := newUndoer(store.Join(), func() {})
	town := &town{t, store, [2]string{listen(t, slow), listen(t, store.Join())}}
	t.Cleanup(slow.open)
	must(t, 201, "POST", town.url(1, "/v1/locks/k"), `{"leaseId":"holder","ttlMs":60000}`)
	first := town.call(0, "k", "w")
	town.await("k", window, "queued", queueOf(1))
	first.die()
	soon(t, "the first service gives the place up", slow.leaving)
	must(t, 202, "PUT", town.url(1, "/v1/locks/k/leases/w"), `{"ttlMs":60000,"ticketMs":60000}`)
	slow.open()
	soon(t, "the first service has given it up", slow.left)
	if snap := town.look("k"); !queueOf(1)(snap) {
		t.Errorf("the renewed place is gone: %+v", snap)
	}
}

// Healthy leases of a batch must not end because the store is asked about leases that are gone.
func TestRenew_ABatchWithGoneLeasesTakesOneRequestOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 40
		var asked, now, most atomic.Int64
		store := &hooked{memdriver.New(), func(_ context.Context, verb, _ string) error {
			if verb == "acquire" {
				asked.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
			}
			time.Sleep(time.Second)
			return nil
		}}
		s := open(t, store, server.WithAuditLog(new(safe)), server.WithStoreTimeout(time.Minute))
		var body []string
		for i := range leases {
			body = append(body, fmt.Sprintf(`{"key":"k","leaseId":"l%d"}`, i))
		}
		began := time.Now()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/leases:renew", strings.NewReader(`{"leases":[`+strings.Join(body, ",")+`]}`)))
		if n, took := strings.Count(w.Body.String(), `"state":"gone"`), time.Since(began); n != leases || took != time.Second {
			t.Errorf("%d of %d are gone, after %v: %d %s", n, leases, took, w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		if asked.Load() != leases || most.Load() > 8 {
			t.Errorf("the store was asked about %d leases, %d at a time", asked.Load(), most.Load())
		}
	})
}

// The machine of the service is suspended for 20 s after the store has answered. Other clocks
// continue, so the remaining time in the answer must not include the 20 s.
func TestRemaining_P2_IsToldWithoutASuspension(t *testing.T) {
	store := answeredBy(memdriver.New(), func(context.Context, string, string, driver.Reply) error {
		clock.Advance(20 * time.Second)
		return nil
	})
	base := listen(t, store)
	type told struct {
		Remaining int64  `json:"remainingMs"`
		Leases    []told `json:"leases"`
	}
	for _, c := range []struct{ name, method, path, body string }{
		{"acquire", "POST", "/v1/locks/k", `{"leaseId":"a","ttlMs":60000}`},
		{"renew", "PUT", "/v1/locks/k/leases/a", `{"ttlMs":60000}`},
		{"renewBatch", "POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a","ttlMs":60000}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text := ask(t, c.method, base+c.path, c.body)
			var got told
			if err := json.Unmarshal([]byte(text), &got); err != nil || status >= 300 {
				t.Fatal(status, text, err)
			}
			for _, l := range append(got.Leases, got)[:1] {
				if l.Remaining <= 0 || l.Remaining > 40_000 {
					t.Errorf("%d ms are left: %s", l.Remaining, text)
				}
			}
		})
	}
}
