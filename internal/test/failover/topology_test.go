package failover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// promoted waits until a replica serves the slots of its dead primary, and the other primaries
// know it.
func promoted(r *rig, cluster *redistest.Cluster, replica, dead *redistest.Server) {
	r.Helper()
	primary := func(line string) bool {
		return strings.Contains(line, fmt.Sprintf(":%d@", replica.Port())) && strings.Contains(line, "master") && !strings.Contains(line, "fail")
	}
	r.eventually("promoted", func() bool {
		return !slices.ContainsFunc(cluster.Nodes, func(node *redistest.Server) bool {
			text, _ := node.Client().ClusterNodes(context.Background()).Result()
			return node != dead && !slices.ContainsFunc(strings.Split(text, "\n"), primary)
		})
	})
}

// within is the time limit of a step on a busy machine. A step that waits for a timeout of a
// request takes longer.
const within = 5 * time.Second

// H2, H3: a client that was idle while its node was replaced.
func TestCluster_HR_H2_H3_NodeThatWasReplacedCostsAnIdleClientNoTimeout(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for name, strike := range map[string]func(*redistest.Server){
		"hangs": (*redistest.Server).Stop, "killed": (*redistest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3)
			const key = "{k}"
			primary := cluster.Owner(key)
			replica := cluster.AddReplica(primary)
			url := clusterURL(cluster, "timeout=20s")
			both(t, func(r *rig) acts {
				c := r.client(url, leasehold.WithTTL(10*time.Minute), leasehold.WithReleaseTimeout(40*time.Second))
				var held []*leasehold.Lease
				for i := range 8 {
					held = append(held, r.lock(c, fmt.Sprint(key, i)))
				}
				waiting := r.await(c, key+"0", 0)
				return acts{func() {
					promoted(r, cluster, replica, primary)
					start := time.Now()
					var all sync.WaitGroup
					for _, l := range held {
						all.Go(func() {
							if err := l.Release(); err != nil {
								t.Errorf("%s: release after %v: %v", r.library, time.Since(start), err)
							}
						})
					}
					all.Wait()
					entered := r.enters(waiting)
					if took := entered.at.Sub(start); took > 2*within {
						live.Late(t, "%s: the waiter entered after %v", r.library, took)
					}
					r.release(entered.lease)
					l, err := c.Mutex(key + "1").TryLock(context.Background())
					if err != nil {
						t.Fatalf("%s: %v", r.library, err)
					}
					r.release(l)
					if took := time.Since(start); took > 3*within {
						live.Late(t, "%s: all took %v", r.library, took)
					}
				}}
			}, func() {
				primary.Replicated(t, key, 1)
				strike(primary)
			})
		})
	}
}
