package rueidisdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// A call that is cancelled while rueidis connects to a server that hangs has not sent its
// request.
func TestAcquire_CancelledWhileConnectingReturnsAtOnceAndDefinitely(t *testing.T) {
	live.Test(t)
	for name, warm := range map[string]bool{"first connection": false, "after a lost connection": true} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			d := over(t, rueidis.ClientOption{InitAddress: []string{s.Addr()}, PipelineMultiplex: -1}, rueidisdriver.WithTimeout(10*time.Second))
			if warm {
				if _, err := d.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Minute}); err != nil {
					t.Fatal(err)
				}
				s.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}
			s.Stop()
			defer s.Cont()
			if warm { // rueidis notices that the connection is lost when it is used
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, _ = d.Acquire(ctx, driver.Request{Key: "k", ID: "a", TTL: time.Minute})
				cancel()
			}
			for what, end := range map[string]func() (context.Context, context.CancelFunc){
				"cancel": func() (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(50*time.Millisecond, cancel)
					return ctx, cancel
				},
				"deadline": func() (context.Context, context.CancelFunc) {
					return context.WithTimeout(t.Context(), 50*time.Millisecond)
				},
			} {
				ctx, cancel := end()
				began := time.Now()
				_, err := d.Acquire(ctx, driver.Request{Key: "k", ID: "a", TTL: time.Minute})
				cancel()
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable: the request was not sent", what, err)
				}
				if took := time.Since(began); took > time.Second {
					live.Late(t, "%s: returned after %v", what, took)
				}
			}
		})
	}
}
