package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func clusterURL(c *redistest.Cluster, query string) string {
	return "redis+cluster://" + strings.Join(c.Addrs(), ",") + "?" + query
}

// spread locks n keys, and returns the leases by the node that keeps them.
func (r *rig) spread(cluster *redistest.Cluster, c *leasehold.Client, n int) map[*redistest.Server][]*leasehold.Lease {
	r.Helper()
	leases := make(map[*redistest.Server][]*leasehold.Lease)
	for i := range n {
		key := fmt.Sprint("spread", i)
		node := cluster.Owner(r.library + ":" + key)
		leases[node] = append(leases[node], r.lock(c, key))
	}
	return leases
}

// R6: on a cluster.
func TestCluster_R6_HoldsAndWaitsGoOn(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const key = "{k}"
			cluster := redistest.StartCluster(t, 3)
			primary := cluster.Owner(key)
			replica := cluster.AddReplica(primary)
			url := clusterURL(cluster, "timeout=1500ms")
			both(t, func(r *rig) acts {
				brisk := r.client(url, leasehold.WithTTL(patience), leasehold.WithRenewFraction(0.07))
				others := r.spread(cluster, brisk, 30)
				delete(others, primary)
				l := r.queueUp(url, key)
				return acts{func() {
					r.eventually("promoted", func() bool { return replica.Info(t, "replication")["role"] == "master" })
					l.passToFirst()
				}, func() {
					l.passToSecond()
					for _, leases := range others {
						r.renewed(leases...)
					}
				}}
			}, func() {
				primary.Replicated(t, key, 1)
				outage.strike(t, primary, replica.Client().ClusterFailover(context.Background()).Err)
			}, func() { outage.heal(primary) })
		})
	}
}

// L11
func TestCluster_L11_OneNodeDownForThreeLeases(t *testing.T) {
	live.Test(t)
	t.Parallel()
	const ttl = 8 * time.Second
	for name, strike := range map[string]func(*redistest.Server){
		"hangs": (*redistest.Server).Stop, "killed": (*redistest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3)
			down := cluster.Nodes[1]
			both(t, func(r *rig) acts {
				c := r.client(clusterURL(cluster, "timeout=500ms"), leasehold.WithTTL(ttl), leasehold.WithRenewFraction(0.05), leasehold.WithReleaseTimeout(4*time.Second))
				leases := r.spread(cluster, c, 90)
				r.renewed(leases[down]...)
				ends, began := losses(leases[down]), time.Now()
				return acts{func() {
					r.wantLostInTime(leases[down], ends)
					time.Sleep(time.Until(began.Add(3 * ttl))) // the remaining leases have to be held all the time
					for node, some := range leases {
						if node != down {
							r.wantHeld(some)
						}
					}
					if stats := c.Stats(); int(stats.Lost) != len(leases[down]) || stats.Lost == 0 {
						t.Errorf("%s: %d leases were on the node that is down: %+v", r.library, len(leases[down]), stats)
					}
					for node, some := range leases {
						if node != down {
							r.release(some[0])
							r.release(r.lock(c, some[0].Key()))
						}
					}
				}}
			}, func() { strike(down) })
		})
	}
}

// losses returns channels that receive the time when each lease ends.
func losses(leases []*leasehold.Lease) []chan time.Time {
	ends := make([]chan time.Time, len(leases))
	for i, l := range leases {
		ends[i] = make(chan time.Time, 1)
		context.AfterFunc(l.Context(), func() { ends[i] <- time.Now() })
	}
	return ends
}

// wantLostInTime waits until all leases are lost, each by its deadline.
func (r *rig) wantLostInTime(leases []*leasehold.Lease, ends []chan time.Time) {
	r.Helper()
	for i, l := range leases {
		select {
		case at := <-ends[i]:
			if cause := context.Cause(l.Context()); !errors.Is(cause, leasehold.ErrLost) {
				r.Errorf("%s: %q: %v, want ErrLost", r.library, l.Key(), cause)
			}
			if late := at.Sub(l.Deadline()); late > 3*time.Second {
				r.Errorf("%s: %q was lost %v after its deadline", r.library, l.Key(), late)
			}
		case <-time.After(patience):
			r.Fatalf("%s: the lease of %q on a node that is down has not ended", r.library, l.Key())
		}
	}
}

// wantHeld checks that no lease has ended. A lease whose last renewal got no answer in time is
// unconfirmed for a moment, and not lost.
func (r *rig) wantHeld(leases []*leasehold.Lease) {
	r.Helper()
	for _, l := range leases {
		if !l.State().Live() {
			r.Errorf("%s: %q on a node that serves is %v: %v", r.library, l.Key(), l.State(), context.Cause(l.Context()))
		}
	}
}
