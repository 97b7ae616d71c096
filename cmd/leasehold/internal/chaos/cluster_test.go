//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestChaos_OnACluster uses three primaries with one replica each.
func TestChaos_OnACluster(t *testing.T) {
	t.Parallel()
	c := &cluster{redistest.StartCluster(t, 3)}
	for _, primary := range c.Nodes[:3] {
		c.AddReplica(primary)
	}
	addrs := strings.Join(c.Addrs(), ",")
	suffer(t, arena{
		label: "cluster of three with replicas", rules: queue, havoc: c.havoc(history.ForgetsSome),
		stores:  []string{"redis+cluster://" + addrs + "?timeout=" + tryTimeout.String(), viaGoRedis + "redis+cluster://" + addrs},
		observe: failovers(c.Nodes, c.heal),
	})
}

type cluster struct{ *redistest.Cluster }

// pick returns a node of the role. It asks repeatedly, because a busy node may not answer
// in time.
func (c *cluster) pick(rnd *rand.Rand, role string) (node *redistest.Server, err error) {
	err = recovers(func() string {
		for _, i := range rnd.Perm(len(c.Nodes)) {
			if node = c.Nodes[i]; replication(node)["role"] == role {
				return ""
			}
		}
		return "no node is a " + role
	})
	return node, err
}

// heal waits until every primary has a replica that follows it, and all nodes
// report a healthy cluster.
func (c *cluster) heal() error {
	return recovers(func() string {
		primaries := 0
		for _, node := range c.Nodes {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			info, _ := node.Client().ClusterInfo(ctx).Result()
			cancel()
			r := replication(node)
			if r["role"] == "master" {
				primaries++
			}
			follows := r["role"] == "slave" && r["master_link_status"] == "up"
			leads := r["role"] == "master" && strings.Contains(r["slave0"], "state=online")
			if !strings.Contains(info, "cluster_state:ok") || !leads && !follows {
				return fmt.Sprintf("%s: %v", node.Addr(), r)
			}
		}
		if primaries != 3 {
			return fmt.Sprintf("%d primaries", primaries)
		}
		return ""
	})
}

func (c *cluster) havoc(forgets string) []chaos.Havoc {
	role := func(role string) on {
		return picked(func(rnd *rand.Rand) (*redistest.Server, error) { return c.pick(rnd, role) }, c.heal)
	}
	primary, replica := role("master"), role("slave")
	kill := func(rnd *rand.Rand, s *redistest.Server) error {
		s.Kill()
		// Longer than a failover takes.
		time.Sleep(2*time.Second + upTo(rnd, 2*ttl))
		s.Restart()
		return nil
	}
	return append(commands(primary),
		primary("stop a primary", forgets, stopFor),
		primary("kill a primary", forgets, kill),
		replica("stop a replica", "", stopFor),
		chaos.Havoc{Name: "CLUSTER FAILOVER", Do: func(rnd *rand.Rand) error { return errors.Join(c.failover(rnd), c.heal()) }},
		c.moves("move a slot and back", 0),
		c.moves("move a slot half-way, then on and back", time.Second),
	)
}

// failover makes a replica take the place of its primary. It retries, because a node refuses
// if it has just become a primary, or if a stall has ended its connection to the primary,
// which takes a moment to recover.
func (c *cluster) failover(rnd *rand.Rand) error {
	return recovers(func() string {
		replica, err := c.pick(rnd, "slave")
		if err == nil {
			err = tell(replica, "CLUSTER", "FAILOVER")
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// moves moves a slot that is in use to another primary, and back a while later.
// Each move pauses for halfWay after the first key.
func (c *cluster) moves(name string, halfWay time.Duration) chaos.Havoc {
	return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
		p, kinds := plan(), []chaos.Kind{chaos.Mutex, chaos.Mutex, chaos.RW, chaos.Semaphore}
		key := redisroom.DefaultPrefix + p.Key(kinds[rnd.IntN(len(kinds))], rnd.IntN(p.Keys), chaos.Now())
		var home *redistest.Server
		for range 2 {
			from, err := c.move(key, home, halfWay)
			if err != nil {
				// A failover has replaced a node during the move; failovers records it.
				if err := errors.Join(c.heal(), c.mend(), c.heal()); err != nil {
					return err
				}
			}
			home = from
			time.Sleep(upTo(rnd, ttl))
		}
		return c.heal()
	}}
}

// move moves the slot of a key to a node, and returns the node that had it.
func (c *cluster) move(key string, to *redistest.Server, halfWay time.Duration) (from *redistest.Server, err error) {
	m, err := c.TryMove(key, to)
	if err != nil {
		return nil, err
	}
	if halfWay > 0 {
		if err := m.One(); err != nil {
			return nil, err
		}
		time.Sleep(halfWay)
	}
	if err := errors.Join(m.Rest(), m.End()); err != nil {
		return nil, err
	}
	return m.From, recovers(func() string {
		if !m.Settled(c.Cluster) {
			return "the nodes do not agree who serves the slot that was moved"
		}
		return ""
	})
}

// mend repairs a slot after a failed move.
func (c *cluster) mend() error {
	return recovers(func() string {
		if problem := redisCLI("--cluster", "fix", c.Nodes[0].Addr(), "--cluster-yes"); problem != "" {
			return problem
		}
		return redisCLI("--cluster", "check", c.Nodes[0].Addr())
	})
}

// redisCLI runs redis-cli, and returns its output if it fails.
func redisCLI(args ...string) string {
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("redis-cli %v: %v\n%s", args, err, out)
	}
	return ""
}
