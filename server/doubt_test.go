package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered: the error of the second try does not
// apply to the first.
func TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, then := range []error{driver.ErrUnavailable, driver.ErrInvalid, driver.ErrMismatch, driver.ErrClosed, errors.ErrUnsupported} {
			asked := 0
			s := open(t, &answering{*acquires(memdriver.New(), func(string) error {
				if asked++; asked > 1 {
					return then
				}
				return nil
			}), func(_ context.Context, verb, _ string, _ driver.Reply) error {
				if verb == "acquire" {
					return errors.New("connection reset")
				}
				return nil
			}})
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/locks/k", nil))
			if w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), server.Unknown.Type()) {
				t.Errorf("%v: %d %s, want the outcome to be unknown", then, w.Code, w.Body)
			}
			_ = s.Close()
		}
	})
}

// refusing is a store that refuses all requests while it is away: after it has answered enough
// acquires of the lease b.
type refusing struct {
	*answering
	away     atomic.Bool
	answered atomic.Int32
}

func newRefusing(enough int32) *refusing {
	r := new(refusing)
	r.answering = answeredBy(memdriver.New(), func(_ context.Context, verb, id string, _ driver.Reply) error {
		if verb == "acquire" && id == "b" && r.answered.Add(1) == enough {
			r.away.Store(true)
		}
		return nil
	})
	r.before = func(context.Context, string, string) error {
		if r.away.Load() {
			return fmt.Errorf("%w: loading", driver.ErrUnavailable)
		}
		return nil
	}
	return r
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
			enough := int32(1)
			if row.beside {
				enough = 2
			}
			store := newRefusing(enough)
			var asked driver.Driver = struct{ driver.Driver }{store} // without hints
			if !row.queue {
				asked = blind{store, nil}
			}
			_, base := serve(t, asked)
			must(t, http.StatusCreated, "POST", base+"/v1/locks/k", `{"leaseId":"a"}`)
			wait := func(ms string) (int, string) {
				return ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"b","waitMs":`+ms+`,"ticketMs":`+row.ticket+`}`)
			}
			var other sync.WaitGroup
			if row.beside {
				other.Go(func() { wait("4000") })
				eventually(t, func() bool { return store.answered.Load() == 1 })
			}
			code, text := wait("2500")
			refused(t, "acquire", code, text, server.Unknown)
			store.away.Store(false)
			other.Wait()
		})
	}
}
