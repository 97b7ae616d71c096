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
	"github.com/leasehold-go/leasehold/server"
)

// TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered: the error of the second try does not
// apply to the first.
func TestAcquire_HR_C6_IsUnknownAfterATryThatWasNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, then := range []error{driver.ErrUnavailable, driver.ErrInvalid, driver.ErrMismatch, driver.ErrClosed, errors.ErrUnsupported} {
			asked := 0
			_, base := serve(t, &hooked{memdriver.New(), func(_ context.Context, c call, next next) (driver.Reply, error) {
				if c.verb != "acquire" {
					return next()
				}
				if asked++; asked > 1 {
					return driver.Reply{}, then
				}
				_, _ = next()
				return driver.Reply{}, errors.New("connection reset")
			}})
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
			store := &hooked{memdriver.New(), func(_ context.Context, c call, next next) (driver.Reply, error) {
				if away.Load() {
					return driver.Reply{}, fmt.Errorf("%w: loading", driver.ErrUnavailable)
				}
				reply, err := next()
				if c.verb == "acquire" && c.ID == "b" && given.Add(1) == enough {
					away.Store(true)
				}
				return reply, err
			}}
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
