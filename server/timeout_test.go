package server_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

type traceKey struct{}

// asked is how long a call of a store lasted, and a value of its context.
type asked struct {
	took  time.Duration
	value any
}

// hush returns a store that answers no release, and sends to into when one has ended.
func hush(into chan<- asked) *intercept.Driver {
	return before(memdriver.New(), func(ctx context.Context, m *message) error {
		if m.Verb != intercept.Release {
			return nil
		}
		began := time.Now()
		<-ctx.Done()
		into <- asked{time.Since(began), ctx.Value(traceKey{})}
		return context.Cause(ctx)
	})
}

// direct sends a request with a Host to the handler without a network.
func direct(ctx context.Context, s *server.Server, host, method, path, body string) exchange {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = host
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return exchange{method: method, url: path, sent: body, status: w.Code, header: w.Header(), body: w.Body.String()}
}

// TestServer_AsksASilentStoreForTheTimeoutAtMost sends requests one after the other, which share
// a timer, and whose clients have gone.
func TestServer_AsksASilentStoreForTheTimeoutAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, n = 5 * time.Second, 40
		all := make(chan asked, n)
		s := open(t, hush(all), server.WithStoreTimeout(timeout))
		for i := range n {
			go func() {
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, i))
				cancel()
				refused(t, direct(ctx, s, "", "DELETE", "/v1/locks/k/leases/x", ""), server.Unknown)
			}()
			time.Sleep(100 * time.Millisecond)
		}
		seen := make(map[any]bool)
		for range n {
			got := <-all
			if got.took > timeout || got.took < timeout*15/16 {
				t.Errorf("asked for %v, want %v or a sixteenth less", got.took, timeout)
			}
			seen[got.value] = true
		}
		if len(seen) != n {
			t.Errorf("values of %d requests came to the store, want %d", len(seen), n)
		}
		synctest.Wait()
	})
}

// The client of a store adds its spans to the trace of the request.
func TestServer_AsksTheStoreInTheContextOfTheRequest(t *testing.T) {
	seen := make(map[intercept.Verb]any)
	s := open(t, before(memdriver.New(), func(ctx context.Context, m *message) error {
		if m.ID() != "" {
			seen[m.Verb] = ctx.Value(traceKey{})
		}
		return nil
	}))
	ctx := context.WithValue(t.Context(), traceKey{}, "trace")
	answered(t, 201, direct(ctx, s, "", "POST", "/v1/locks/k", `{"leaseId":"a"}`))
	answered(t, 200, direct(ctx, s, "", "PUT", "/v1/locks/k/leases/a", ""))
	answered(t, 204, direct(ctx, s, "", "DELETE", "/v1/locks/k/leases/a", ""))
	if want := map[intercept.Verb]any{"acquire": "trace", "renew": "trace", "release": "trace"}; !maps.Equal(seen, want) {
		t.Errorf("asked with %v, want %v", seen, want)
	}
}

// punctual is a store that observes deadlines.
type punctual struct{ *intercept.Driver }

func (punctual) CallTimeout() time.Duration { return 0 }

// A store that observes deadlines gets contexts with a deadline that are never done. It is asked
// again until the time is over, also for a client that has gone.
func TestServer_TellsAPunctualStoreOfTheTimeoutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		tries, cancelable := 0, 0
		s := open(t, punctual{before(memdriver.New(), func(ctx context.Context, m *message) error {
			if m.Verb != intercept.Acquire {
				return nil
			}
			if tries++; ctx.Done() != nil {
				cancelable++
			}
			end, _ := ctx.Deadline()
			time.Sleep(min(time.Second, time.Until(end)))
			return errors.New("no answer")
		})}, server.WithStoreTimeout(timeout))
		begin := time.Now()
		refused(t, direct(t.Context(), s, "", "POST", "/v1/locks/k", ""), server.Unknown)
		if took := time.Since(begin); took != timeout {
			t.Errorf("answered after %v, want %v", took, timeout)
		}
		if tries != 5 || cancelable > 0 {
			t.Errorf("asked %d times, want 5; %d times with a channel", tries, cancelable)
		}
	})
}

// slow is an authenticator that needs some time.
type slow time.Duration

func (d slow) Authenticate(*http.Request) (auth.Principal, error) {
	time.Sleep(time.Duration(d))
	return anyone{}, nil
}

// The store timeout begins at the call of the store, also if authentication took longer.
func TestServer_AsksTheStoreForTheWholeTimeoutHoweverLateItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		all := make(chan asked, 1)
		s := open(t, hush(all), server.WithStoreTimeout(timeout), server.WithAuthenticator(slow(2*timeout)))
		direct(t.Context(), s, "", "DELETE", "/v1/locks/k/leases/x", "")
		if got := <-all; got.took != timeout {
			t.Errorf("asked for %v, want %v", got.took, timeout)
		}
	})
}
