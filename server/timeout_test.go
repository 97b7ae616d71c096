package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server"
)

// mute is a store that does not answer, and takes note of how long it was
// asked and of what its callers have in their contexts.
type mute struct {
	instant
	asked chan asked
}

type asked struct {
	took  time.Duration
	value any
}

type traceKey struct{}

func (s mute) Release(ctx context.Context, _ driver.Ref) (driver.Reply, error) {
	began := time.Now()
	<-ctx.Done()
	s.asked <- asked{time.Since(began), ctx.Value(traceKey{})}
	return driver.Reply{}, context.Cause(ctx)
}

// TestServer_AsksASilentStoreForTheTimeoutAtMost has requests come one after the
// other, which share what ends them, and of which the clients have gone.
func TestServer_AsksASilentStoreForTheTimeoutAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, n = 5 * time.Second, 40
		store := mute{asked: make(chan asked, n)}
		s, err := server.New(store, server.WithStoreTimeout(timeout))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
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
			t.Errorf("values of %d requests came to the store, want those of %d", len(seen), n)
		}
		synctest.Wait()
	})
}
