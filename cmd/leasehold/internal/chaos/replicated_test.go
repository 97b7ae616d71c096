//go:build linux

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// TestChaos_OnASentinel uses a primary and a replica that lags: a failover may
// lose acknowledged changes, so that exclusion may fail around it. All other promises must
// hold, and tokens must rise.
func TestChaos_OnASentinel(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t)
	// With this limit, a busy machine alone seldom causes a failover.
	if err := tell(set.Sentinel, "SENTINEL", "SET", redistest.PrimaryName, "down-after-milliseconds", "1500"); err != nil {
		t.Fatal(err)
	}
	r := &replicated{nodes: []*redistest.Server{set.Primary, set.Replica}, primaries: 1}
	url := fmt.Sprintf("redis+sentinel://%s/?master=%s&timeout=%v", set.Sentinel.Addr(), redistest.PrimaryName, tryTimeout)
	suffer(t, &chaos.Game{
		Label: "primary and replica with Sentinel", Rules: queue, Havoc: sentinelHavoc(set.Sentinel, r),
		Stores: []string{url, viaGoRedis + url}, Observe: r.failovers,
	})
}

// replicated are servers that change roles: primaries with one replica each.
type replicated struct {
	nodes     []*redistest.Server
	primaries int
	cluster   bool
}

// pick returns a node of the role. It asks repeatedly, because a busy node may not answer
// in time.
func (r *replicated) pick(rnd *rand.Rand, role string) (node *redistest.Server, err error) {
	err = recovers(func() string {
		for _, i := range rnd.Perm(len(r.nodes)) {
			if node = r.nodes[i]; replication(node)["role"] == role {
				return ""
			}
		}
		return "no node is a " + role
	})
	return node, err
}

// on makes faults of nodes of the role.
func (r *replicated) on(role string) on {
	return picked(func(rnd *rand.Rand) (*redistest.Server, error) { return r.pick(rnd, role) }, r.heal)
}

// heal waits until every primary has a replica that follows it, and the nodes of a cluster
// report that it is healthy.
func (r *replicated) heal() error {
	return recovers(func() string {
		primaries := 0
		for _, node := range r.nodes {
			is := replication(node)
			leads := is["role"] == "master" && strings.Contains(is["slave0"], "state=online")
			follows := is["role"] == "slave" && is["master_link_status"] == "up"
			if !leads && !follows || r.cluster && !inHealthyCluster(node) {
				return fmt.Sprintf("%s: %v", node.Addr(), is)
			}
			if leads {
				primaries++
			}
		}
		if primaries != r.primaries {
			return fmt.Sprintf("%d primaries", primaries)
		}
		return ""
	})
}

func inHealthyCluster(node *redistest.Server) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	info, _ := node.Client().ClusterInfo(ctx).Result()
	return strings.Contains(info, "cluster_state:ok")
}

// failovers records every change of roles, also if a busy machine has caused it. The record
// begins before the earliest possible start of the change and ends when all nodes are healthy.
func (r *replicated) failovers(ctx context.Context, note func(history.Record)) {
	const before = 6 * time.Second
	last := make(map[*redistest.Server]string)
	for ok := true; ok; ok = timing.Sleep(ctx, 200*time.Millisecond) {
		changed := false
		for _, s := range r.nodes {
			role := replication(s)["role"]
			changed = changed || role != "" && last[s] != "" && role != last[s]
			if role != "" {
				last[s] = role
			}
		}
		if changed {
			since := chaos.Now() - int64(before)
			_ = r.heal() // the next fault reports its error
			note(history.Record{At: chaos.Now(), Since: since, What: history.Fault, Note: "failover seen", Forgets: history.ForgetsSome})
		}
	}
}

// recovers waits until wrong returns no problem.
func recovers(wrong func() string) error {
	const within = 90 * time.Second
	problem := ""
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if problem = wrong(); problem == "" {
			return nil
		}
	}
	return fmt.Errorf("not healthy after %v: %s", within, problem)
}

// replication returns the fields of section "replication" of INFO, or an empty map if the
// server does not answer.
func replication(s *redistest.Server) map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text, _ := s.Client().Info(ctx, "replication").Result()
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// sentinelHavoc returns the faults of a sentinel and its servers. A failover loses data.
func sentinelHavoc(sentinel *redistest.Server, r *replicated) []chaos.Havoc {
	primary, replica := r.on("master"), r.on("slave")
	leads := func(s *redistest.Server) bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		at, err := sentinel.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.PrimaryName).StringSlice()
		return err != nil || strings.Join(at, ":") == s.Addr()
	}
	// kill waits for a failover for a limited time: a sentinel that was stopped or starved
	// starts no failover for half a minute, and then rejects a replica that has been
	// disconnected for that long. In that case the primary restarts, without data.
	kill := func(_ *rand.Rand, s *redistest.Server) error {
		s.Kill()
		for end := time.Now().Add(20 * time.Second); leads(s) && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		s.Restart()
		return nil
	}
	failover := func(*rand.Rand, *redistest.Server) error {
		// The sentinel refuses during another failover, and shortly after it.
		_ = tell(sentinel, "SENTINEL", "FAILOVER", redistest.PrimaryName)
		time.Sleep(ttl)
		return nil
	}
	stopSentinel := func(rnd *rand.Rand, _ *redistest.Server) error { return stopFor(rnd, sentinel) }
	return append(commands(primary),
		primary("failover by command", history.ForgetsSome, failover),
		primary("kill the primary", history.ForgetsSome, kill),
		primary("stop the primary", history.ForgetsSome, stopFor),
		replica("stop the replica", "", stopFor),
		primary("stop the sentinel", "", stopSentinel),
	)
}
