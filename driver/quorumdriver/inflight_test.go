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

// behindServices plays f on a quorum of three services, of which first requests are late.
func behindServices(t *testing.T, late time.Duration, f func(t *testing.T, all []*server, a asker)) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		var nodes []driver.Driver
		for _, s := range all {
			nodes = append(nodes, relay{client{s}, late})
		}
		f(t, all, open(t, nodes))
	})
}

// A request of a service that reaches its store after the release does not lock again.
func TestRelease_HR_A2_ARequestThatANodeHasOnItsWayRevivesNothing(t *testing.T) {
	behindServices(t, time.Second, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		synctest.Wait()
		a.release("a", driver.Released)
		time.Sleep(2 * time.Second)
		wantInside(t, all)
		a.acquire("b", driver.Granted)
		time.Sleep(2 * time.Second) // until the late requests have arrived
	})
}

// Such a request does not keep the quorum from asking the node again, and its grant is not
// treated as the grant of another client.
func TestAcquire_ANodeThatHasARequestOnItsWayIsAskedAgain(t *testing.T) {
	behindServices(t, time.Millisecond, func(t *testing.T, all []*server, a asker) {
		a.acquire("a", driver.Granted)
		time.Sleep(time.Second)
		if reply := a.acquire("a", driver.Granted); !reply.Replayed {
			t.Errorf("asked again by its holder: %+v", reply)
		}
		a.renewed("a", driver.Granted)
		wantInside(t, all, "a")
		time.Sleep(time.Second)
	})
}
