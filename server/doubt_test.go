package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// doubtful is a store that grants without an answer, and returns another error to the second try.
type doubtful struct {
	driver.Driver
	then  error
	asked int
}

func (d *doubtful) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if d.asked++; d.asked > 1 {
		return driver.Reply{}, d.then
	}
	if _, err := d.Driver.Acquire(ctx, req); err != nil {
		return driver.Reply{}, err
	}
	return driver.Reply{}, errors.New("connection reset")
}

// TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered: the error of the second try does not
// apply to the first.
func TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, then := range []error{driver.ErrUnavailable, driver.ErrInvalid, driver.ErrMismatch, driver.ErrClosed, errors.ErrUnsupported} {
			s := open(t, &doubtful{Driver: memdriver.New(), then: then})
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
	driver.Driver
	away     atomic.Bool
	enough   int32
	answered atomic.Int32
}

func (r *refusing) err() error {
	if r.away.Load() {
		return fmt.Errorf("%w: loading", driver.ErrUnavailable)
	}
	return nil
}

func (r *refusing) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := r.err(); err != nil {
		return driver.Reply{}, err
	}
	reply, err := r.Driver.Acquire(ctx, req)
	if req.ID == "b" && err == nil && r.answered.Add(1) == r.enough {
		r.away.Store(true)
	}
	return reply, err
}

func (r *refusing) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if r.err() == nil {
		r.Driver.Renew(ctx, refs, each)
		return
	}
	for i := range refs {
		each(i, driver.Reply{}, r.err())
	}
}

func (r *refusing) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if err := r.err(); err != nil {
		return driver.Reply{}, err
	}
	return r.Driver.Release(ctx, ref)
}

// The store refuses requests at the end of a wait. A store with a queue still has the place, and
// may hand the lock over. A store without a queue has not confirmed recently that the lock is
// held.
func TestAcquire_AWaitThatEndsWhileTheStoreRefusesIsUnknown(t *testing.T) {
	for _, row := range []struct {
		name   string
		store  driver.Driver
		ticket string
	}{
		{"its place is kept", memdriver.New(), "3000"},
		{"it has no place afterwards", memdriver.New(), "0"},
		{"there is no queue", driver.FromBasic(new(single)), "0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &refusing{Driver: row.store, enough: 1}
				_, base := serve(t, store)
				must(t, http.StatusCreated, "POST", base+"/v1/locks/k", `{"leaseId":"a"}`)
				code, text := ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"b","waitMs":2500,"ticketMs":`+row.ticket+`}`)
				refused(t, "acquire", code, text, server.Unknown)
				store.away.Store(false)
			})
		})
	}
}

// A client has sent two requests for one lease, and one ends before the other.
func TestAcquire_AWaitThatEndsBesideAnotherWhileTheStoreRefusesIsUnknown(t *testing.T) {
	for _, ticket := range []string{"3000", "0"} {
		t.Run("a ticket of "+ticket+" ms", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &refusing{Driver: memdriver.New(), enough: 2}
				_, base := serve(t, store)
				must(t, http.StatusCreated, "POST", base+"/v1/locks/k", `{"leaseId":"a"}`)
				wait := func(ms string) (int, string) {
					return ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"b","waitMs":`+ms+`,"ticketMs":`+ticket+`}`)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					wait("4000")
				}()
				eventually(t, func() bool { return store.answered.Load() == 1 })
				code, text := wait("2500")
				refused(t, "acquire", code, text, server.Unknown)
				store.away.Store(false)
				<-ended
			})
		})
	}
}

// single is a store of three verbs, with one key. The first client to ask holds it for ever.
type single struct{ holder atomic.Value }

func (s *single) SetNX(_ context.Context, _, id string, _ time.Duration) (bool, error) {
	return s.holder.CompareAndSwap(nil, id), nil
}

func (s *single) Renew(_ context.Context, _, id string, _ time.Duration) (bool, error) {
	return s.holder.Load() == id, nil
}

func (s *single) Delete(context.Context, string, string) (bool, error) { return false, nil }
