package failover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// R8: a lease whose renewals are not acknowledged is unconfirmed, heals when the
// replica is back, and is lost by its deadline if it stays away.
func TestReplicas_R8_LeaseLivesByAcknowledgedRenewals(t *testing.T) {
	live.Test(t)
	t.Parallel()
	const ttl = 10 * time.Second
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	both(t, func(r *rig) acts {
		c := r.client(primary.URL()+"?replicas=1", leasehold.WithTTL(ttl), leasehold.WithRenewFraction(0.15))
		held := r.lock(c, "k")
		r.renewed(held)
		unconfirmed := func() {
			r.eventually("unconfirmed", func() bool { return held.State() == leasehold.Unconfirmed })
		}
		lost := func() {
			select {
			case <-held.Context().Done():
			case <-time.After(patience):
				t.Fatalf("%s: held without a replica that has the lease", r.library)
			}
			if cause := context.Cause(held.Context()); !errors.Is(cause, leasehold.ErrLost) {
				t.Errorf("%s: %v, want ErrLost", r.library, cause)
			}
		}
		return acts{unconfirmed, func() { r.renewed(held) }, lost}
	}, replica.Stop, replica.Cont, replica.Stop)
	replica.Cont()
}

// R8: waiters keep their places while replicas are away.
func TestReplicas_R8_WaitersGetTheirTurnWhenReplicasAreBack(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	both(t, func(r *rig) acts {
		l := r.queueUp(primary.URL()+"?replicas=1", "k")
		handOver := func() {
			r.release(l.held)
			time.Sleep(500 * time.Millisecond) // no waiter may get the lock in this time
			select {
			case e := <-l.first:
				t.Errorf("%s: granted without a replica that has the lease: %+v", r.library, e)
			default:
			}
		}
		enter := func() {
			one := l.enters(l.first)
			if one.lease.Token() <= l.held.Token() {
				t.Errorf("%s: token %d after %d", r.library, one.lease.Token(), l.held.Token())
			}
			r.release(one.lease)
			two := l.enters(l.second)
			r.release(two.lease)
		}
		return acts{handOver, enter}
	}, replica.Stop, replica.Cont)
}
