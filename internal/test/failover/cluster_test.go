package failover_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
