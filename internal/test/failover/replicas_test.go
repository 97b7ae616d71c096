package failover_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

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
