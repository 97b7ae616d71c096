//go:build linux

package chaos_test

import (
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
	servers := redistest.StartCluster(t, 3)
	for _, primary := range servers.Nodes[:3] {
		servers.AddReplica(primary)
	}
	c := &cluster{servers, &replicated{nodes: servers.Nodes, primaries: 3, cluster: true}}
	url := "redis+cluster://" + strings.Join(c.Addrs(), ",") + "?timeout=" + tryTimeout.String()
	suffer(t, &chaos.Game{
		Label: "cluster of three with replicas", Rules: queue, Havoc: c.havoc(),
		Stores:  []string{url, viaGoRedis + url},
		Observe: c.failovers,
	})
}

type cluster struct {
	*redistest.Cluster
	*replicated
}

// havoc returns the faults of the cluster. A failover loses data.
func (c *cluster) havoc() []chaos.Havoc {
	primary, replica := c.on("master"), c.on("slave")
	kill := func(rnd *rand.Rand, s *redistest.Server) error {
		s.Kill()
		// Longer than a failover takes.
		time.Sleep(2*time.Second + upTo(rnd, 2*ttl))
		s.Restart()
		return nil
	}
	return append(commands(primary),
		primary("stop a primary", history.ForgetsSome, stopFor),
		primary("kill a primary", history.ForgetsSome, kill),
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
			return "the nodes do not agree on the owner of the slot that was moved"
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
