package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

// instant is a store that grants and releases every lease at once.
type instant struct{}

func (instant) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{State: driver.Granted, Token: 1 << 50, Holds: 1, Clock: time.Hour}, nil
}

func (instant) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{State: driver.Granted}, nil)
	}
}

func (instant) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{State: driver.Released}, nil
}

func (instant) Close() error { return nil }

// hush is a store that does not answer. It records how long each call lasted, and a value of its
// context.
type hush struct {
	instant
	asked chan asked
}

type asked struct {
	took  time.Duration
	value any
}

type traceKey struct{}

func (s hush) Release(ctx context.Context, _ driver.Ref) (driver.Reply, error) {
	began := time.Now()
	<-ctx.Done()
	s.asked <- asked{time.Since(began), ctx.Value(traceKey{})}
	return driver.Reply{}, context.Cause(ctx)
}

// TestServer_AsksASilentStoreForTheTimeoutAtMost sends requests one after the other, which share
// a timer, and whose clients have gone.
func TestServer_AsksASilentStoreForTheTimeoutAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, n = 5 * time.Second, 40
		store := hush{asked: make(chan asked, n)}
		s := open(t, store, server.WithStoreTimeout(timeout))
		for i := range n {
			go func() {
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, i))
				cancel()
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodDelete, "/v1/locks/k/leases/x", nil))
				if w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), server.Unknown.Type()) {
					t.Errorf("%d: %s", w.Code, w.Body)
				}
			}()
			time.Sleep(100 * time.Millisecond)
		}
		seen := make(map[any]bool)
		for range n {
			got := <-store.asked
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

// dutiful is a store that is punctual, and never answers an acquire.
type dutiful struct {
	hush
	tries chan time.Time
}

func (s dutiful) CallTimeout() time.Duration { return 0 }

func (s dutiful) Acquire(ctx context.Context, _ driver.Request) (driver.Reply, error) {
	if ctx.Done() != nil {
		s.asked <- asked{}
	}
	end, _ := ctx.Deadline()
	time.Sleep(min(time.Second, time.Until(end)))
	s.tries <- time.Now()
	return driver.Reply{}, errors.New("no answer")
}

// A store that observes deadlines gets contexts with a deadline that are never done. It is asked
// again until the time is over, also for a client that has gone.
func TestServer_TellsAPunctualStoreOfTheTimeoutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		store := dutiful{hush{asked: make(chan asked, 9)}, make(chan time.Time, 9)}
		s := open(t, store, server.WithStoreTimeout(timeout))
		begin := time.Now()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/locks/k", nil))
		if w.Code != http.StatusGatewayTimeout || time.Since(begin) != timeout {
			t.Errorf("%d after %v, want %d after %v", w.Code, time.Since(begin), http.StatusGatewayTimeout, timeout)
		}
		if len(store.tries) != 5 || len(store.asked) > 0 {
			t.Errorf("asked %d times, want 5; %d times with a channel", len(store.tries), len(store.asked))
		}
	})
}

// slow is an authenticator that needs some time.
type slow time.Duration

func (d slow) Authenticate(*http.Request) (auth.Principal, error) {
	time.Sleep(time.Duration(d))
	return d, nil
}

func (slow) Name() string               { return "somebody" }
func (slow) May(auth.Verb, string) bool { return true }

// The store timeout begins at the call of the store, also if authentication took longer.
func TestServer_AsksTheStoreForTheWholeTimeoutHoweverLateItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		store := hush{asked: make(chan asked, 1)}
		s := open(t, store, server.WithStoreTimeout(timeout), server.WithAuthenticator(slow(2*timeout)))
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/v1/locks/k/leases/x", nil))
		if got := <-store.asked; got.took != timeout {
			t.Errorf("asked for %v, want %v", got.took, timeout)
		}
	})
}
