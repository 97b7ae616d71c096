package server_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
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

// Healthy leases of a batch must not end because the store is asked about leases that are gone.
func TestRenew_ABatchWithGoneLeasesTakesOneRequestOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 400
		var asked, now, most atomic.Int64
		store := before(memdriver.New(), func(_ context.Context, m *message) error {
			if m.Verb == intercept.Acquire {
				asked.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
			}
			time.Sleep(time.Second)
			return nil
		})
		_, base := serve(t, store, server.WithAuditLog(new(safe)), server.WithStoreTimeout(time.Minute))
		var body []string
		for i := range leases {
			body = append(body, fmt.Sprintf(`{"key":"k","leaseId":"l%d"}`, i))
		}
		began, running := time.Now(), runtime.NumGoroutine()
		text := must(t, 200, "POST", base+"/v1/leases:renew", `{"leases":[`+strings.Join(body, ",")+`]}`)
		if n, took := strings.Count(text, `"state":"gone"`), time.Since(began); n != leases || took != time.Second {
			t.Errorf("%d of %d are gone, after %v: %s", n, leases, took, text)
		}
		if n := runtime.NumGoroutine() - running; n > 50 {
			t.Errorf("%d goroutines are left running", n)
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
	store := after(memdriver.New(), func(*message) error {
		clock.Advance(20 * time.Second)
		return nil
	})
	base := listen(t, store)
	type told struct {
		Remaining int64  `json:"remainingMs"`
		Leases    []told `json:"leases"`
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/locks/k", `{"leaseId":"a","ttlMs":60000}`, 201},
		{"PUT", "/v1/locks/k/leases/a", `{"ttlMs":60000}`, 200},
		{"POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a","ttlMs":60000}]}`, 200},
	} {
		var got told
		answer(t, c.method, base+c.path, c.body, c.status, &got)
		for _, l := range append(got.Leases, got)[:1] {
			if l.Remaining <= 0 || l.Remaining > 40_000 {
				t.Errorf("%s %s: %d ms are left", c.method, c.path, l.Remaining)
			}
		}
	}
}

// post serves a request without a connection.
func post(s *server.Server, path, body string) {
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
}

// slowAuth takes four seconds for its third call.
type slowAuth struct{ calls, running atomic.Int32 }

func (a *slowAuth) Authenticate(*http.Request) (auth.Principal, error) {
	a.running.Add(1)
	defer a.running.Add(-1)
	if a.calls.Add(1) == 3 {
		time.Sleep(4 * time.Second)
	}
	return anyone{}, nil
}

type anyone struct{}

func (anyone) Name() string               { return "anyone" }
func (anyone) May(auth.Verb, string) bool { return true }

func TestClose_WaitsForTheAuthenticatorOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(slowAuth)
		s, err := server.New(memdriver.New(), server.WithAuthenticator(a))
		noErr(t, err)
		post(s, "/v1/locks/k", `{"leaseId":"a"}`)
		go post(s, "/v1/locks/k", `{"leaseId":"b","waitMs":30000}`)
		time.Sleep(6 * time.Second) // the first comparison of rights begins after 5 s
		if a.running.Load() != 1 {
			t.Errorf("%d calls run before Close", a.running.Load())
		}
		noErr(t, s.Close())
		if a.running.Load() != 0 {
			t.Error("a call of the authenticator runs after Close")
		}
	})
}
