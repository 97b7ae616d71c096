package quorumdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// relay is a node behind a service. The store does not answer the service's first request;
// asked again it grants, and the first request arrives later.
type relay struct {
	driver.Driver
	late time.Duration
}

func (r relay) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := r.Driver.Acquire(ctx, req)
	reply.InFlight = true
	go func() {
		time.Sleep(r.late)
		_, _ = r.Driver.Acquire(context.WithoutCancel(ctx), req)
	}()
	return reply, err
}

// A request of a service that reaches its store after the release does not lock again.
func TestRelease_HR_A2_ARequestThatANodeHasOnItsWayRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		var nodes []driver.Driver
		for _, s := range all {
			nodes = append(nodes, relay{client{s}, time.Second})
		}
		a := asker{t, open(t, nodes)}
		a.acquire("a", driver.Granted)
		synctest.Wait()
		a.release("a", driver.Released)
		time.Sleep(2 * time.Second)
		for _, s := range all {
			wantInside(t, s)
		}
		a.acquire("b", driver.Granted)
		time.Sleep(2 * time.Second) // until the late requests have arrived
	})
}

// Such a request does not keep the quorum from asking the node again, and its grant is not
// treated as the grant of another client.
func TestAcquire_ANodeThatHasARequestOnItsWayIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		var nodes []driver.Driver
		for _, s := range all {
			nodes = append(nodes, relay{client{s}, time.Millisecond})
		}
		a := asker{t, open(t, nodes)}
		a.acquire("a", driver.Granted)
		time.Sleep(time.Second)
		if reply := a.acquire("a", driver.Granted); !reply.Replayed {
			t.Errorf("asked again by its holder: %+v", reply)
		}
		a.renewed("a", driver.Granted)
		for _, s := range all {
			wantInside(t, s, "a")
		}
		time.Sleep(time.Second)
	})
}
