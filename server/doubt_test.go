package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
)

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
