package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

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

// TestRenew_ABatchOfGoneLeasesTakesFewGoroutines: the reasons for their ends are looked up for the
// audit log, by a few goroutines.
func TestRenew_ABatchOfGoneLeasesTakesFewGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := before(memdriver.New(), func(context.Context, *message) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		s, err := server.New(store)
		noErr(t, err)
		defer s.Close()
		var ids []string
		for i := range 1000 {
			ids = append(ids, fmt.Sprintf(`{"key":"k","leaseId":"i%d"}`, i))
		}
		post(s, "/v1/leases:renew", `{"leases":[`+strings.Join(ids, ",")+`]}`)
		if n := runtime.NumGoroutine(); n > 500 {
			t.Errorf("%d goroutines", n)
		}
		time.Sleep(time.Minute) // until all reasons are known
	})
}
