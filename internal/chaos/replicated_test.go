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

	"github.com/leasehold-go/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/history"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// TestChaos_OnASentinel has a primary and a replica that lags: a failover may
// lose what the primary had acknowledged, so that exclusion is excused around
// it. Nothing else is, and tokens rise.
func TestChaos_OnASentinel(t *testing.T) {
	t.Parallel()
	s := &watched{redistest.StartSentinel(t)}
	// A busy machine alone is no reason for a failover, or seldom.
	if err := tell(s.set.Sentinel, "SENTINEL", "SET", redistest.PrimaryName, "down-after-milliseconds", "1500"); err != nil {
		t.Fatal(err)
	}
	addr := s.set.Sentinel.Addr()
	suffer(t, arena{
		label: "primary and replica with Sentinel", rules: queue, havoc: s.havoc(history.ForgetsSome),
		stores: []string{
			fmt.Sprintf("redis+sentinel://%s/?master=%s&timeout=%v", addr, redistest.PrimaryName, tryTimeout),
			viaGoRedis + "redis+sentinel://" + addr,
		},
		observe: failovers([]*redistest.Server{s.set.Primary, s.set.Replica}, s.heal),
	})
}

// failovers tells of every change of roles, also of those that a busy machine
// has caused: from before it can have begun until all is well again.
func failovers(servers []*redistest.Server, heal func() error) func(context.Context, func(history.Record)) {
	const before = 6 * time.Second
	return func(ctx context.Context, note func(history.Record)) {
		last := make(map[*redistest.Server]string)
		for ctx.Err() == nil {
			changed := false
			for _, s := range servers {
				role := replication(s)["role"]
				changed = changed || role != "" && last[s] != "" && role != last[s]
				if role != "" {
					last[s] = role
				}
			}
			if changed {
				since := history.Now() - int64(before)
				_ = heal() // what is wrong with it is told by the next fault
				note(history.Record{At: history.Now(), Since: since, What: history.Fault, Note: "failover seen", Forgets: history.ForgetsSome})
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

// watched is a primary and a replica that change places.
type watched struct{ set *redistest.Sentinel }

// roles returns who is the primary now, and who is not.
func (w *watched) roles() (primary, replica *redistest.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	at, err := w.set.Sentinel.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.PrimaryName).StringSlice()
	if err == nil && len(at) == 2 && strings.Join(at, ":") == w.set.Replica.Addr() {
		return w.set.Replica, w.set.Primary
	}
	return w.set.Primary, w.set.Replica
}

// heal waits until the replica follows the primary again.
func (w *watched) heal() error {
	return recovers(func() string {
		primary, replica := w.roles()
		if p := replication(primary); p["role"] != "master" || !strings.Contains(p["slave0"], "state=online") {
			return fmt.Sprintf("primary %s: %v", primary.Addr(), p)
		}
		if r := replication(replica); r["role"] != "slave" || r["master_link_status"] != "up" {
			return fmt.Sprintf("replica %s: %v", replica.Addr(), r)
		}
		return ""
	})
}

// recovers waits until nothing is wrong any more.
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

// replication returns the fields of that section, none if the server is silent.
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

// havoc is what the three servers suffer. forgets is what a failover does to
// what was acknowledged.
func (w *watched) havoc(forgets string) []chaos.Havoc {
	primary := func(name, forgets string, do func(rnd *rand.Rand, primary *redistest.Server) error) chaos.Havoc {
		return chaos.Havoc{Name: name, Forgets: forgets, Do: func(rnd *rand.Rand) error {
			p, _ := w.roles()
			if err := do(rnd, p); err != nil {
				return err
			}
			return w.heal()
		}}
	}
	stop := func(rnd *rand.Rand, s *redistest.Server) error {
		s.Stop()
		time.Sleep(upTo(rnd, 2*ttl))
		s.Cont()
		return nil
	}
	kill := func(rnd *rand.Rand, s *redistest.Server) error {
		s.Kill()
		err := recovers(func() string {
			if now, _ := w.roles(); now == s {
				return "no failover"
			}
			return ""
		})
		s.Restart()
		return err
	}
	failover := func(*rand.Rand, *redistest.Server) error {
		// Refused while another one is on its way, or too soon after it.
		_ = tell(w.set.Sentinel, "SENTINEL", "FAILOVER", redistest.PrimaryName)
		time.Sleep(ttl)
		return nil
	}
	asks := func(args ...any) func(*rand.Rand, *redistest.Server) error {
		return func(_ *rand.Rand, s *redistest.Server) error { return tell(s, args...) }
	}
	return []chaos.Havoc{
		primary("failover by command", forgets, failover),
		primary("kill the primary", forgets, kill),
		primary("stop the primary", forgets, stop),
		primary("CLIENT KILL normal", "", asks("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
		primary("CLIENT KILL pubsub", "", asks("CLIENT", "KILL", "TYPE", "pubsub")),
		primary("SCRIPT FLUSH", "", asks("SCRIPT", "FLUSH")),
		{Name: "stop the replica", Do: func(rnd *rand.Rand) error {
			_, replica := w.roles()
			_ = stop(rnd, replica)
			return w.heal()
		}},
		{Name: "stop the sentinel", Do: func(rnd *rand.Rand) error {
			_ = stop(rnd, w.set.Sentinel)
			return w.heal()
		}},
	}
}

// TestChaos_OnACluster has three primaries with a replica each.
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

// pick returns a node of the role.
func (c *cluster) pick(rnd *rand.Rand, role string) *redistest.Server {
	for _, i := range rnd.Perm(len(c.Nodes)) {
		if replication(c.Nodes[i])["role"] == role {
			return c.Nodes[i]
		}
	}
	return c.Nodes[0]
}

// heal waits until every primary has a replica that follows it, and all nodes
// find the cluster healthy.
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
	node := func(name, role, forgets string, do func(rnd *rand.Rand, s *redistest.Server) error) chaos.Havoc {
		return chaos.Havoc{Name: name, Forgets: forgets, Do: func(rnd *rand.Rand) error {
			if err := do(rnd, c.pick(rnd, role)); err != nil {
				return err
			}
			return c.heal()
		}}
	}
	stop := func(rnd *rand.Rand, s *redistest.Server) error {
		s.Stop()
		time.Sleep(upTo(rnd, 2*ttl))
		s.Cont()
		return nil
	}
	kill := func(rnd *rand.Rand, s *redistest.Server) error {
		s.Kill()
		// Longer than it takes the others to follow somebody else.
		time.Sleep(2*time.Second + upTo(rnd, 2*ttl))
		s.Restart()
		return nil
	}
	asks := func(args ...any) func(*rand.Rand, *redistest.Server) error {
		return func(_ *rand.Rand, s *redistest.Server) error { return tell(s, args...) }
	}
	return []chaos.Havoc{
		node("stop a primary", "master", forgets, stop),
		node("kill a primary", "master", forgets, kill),
		node("stop a replica", "slave", "", stop),
		node("CLUSTER FAILOVER", "slave", "", asks("CLUSTER", "FAILOVER")),
		node("CLIENT KILL normal", "master", "", asks("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
		node("CLIENT KILL pubsub", "master", "", asks("CLIENT", "KILL", "TYPE", "pubsub")),
		node("SCRIPT FLUSH", "master", "", asks("SCRIPT", "FLUSH")),
		c.moves("move a slot and back", 0),
		c.moves("move a slot half-way, then on and back", time.Second),
	}
}

// moves moves a slot that is in use to another primary, and back a while later.
// Each way it stops for so long when one key has moved.
func (c *cluster) moves(name string, halfWay time.Duration) chaos.Havoc {
	return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
		p, kinds := plan(), []chaos.Kind{chaos.Mutex, chaos.Mutex, chaos.RW, chaos.Semaphore}
		key := redisroom.DefaultPrefix + p.Key(kinds[rnd.IntN(len(kinds))], rnd.IntN(p.Keys), history.Now())
		for range 2 {
			if err := c.move(key, halfWay); err != nil {
				// Somebody was replaced meanwhile, which is noted as a failover.
				if err := errors.Join(c.heal(), c.mend(), c.heal()); err != nil {
					return err
				}
			}
			time.Sleep(upTo(rnd, ttl))
		}
		return c.heal()
	}}
}

func (c *cluster) move(key string, halfWay time.Duration) error {
	m, err := c.Transfer(key)
	if err != nil {
		return err
	}
	if halfWay > 0 {
		if err := m.One(); err != nil {
			return err
		}
		time.Sleep(halfWay)
	}
	if err := errors.Join(m.Rest(), m.End()); err != nil {
		return err
	}
	return recovers(func() string {
		if !m.Settled(c.Cluster) {
			return "the nodes do not agree who serves the slot that was moved"
		}
		return ""
	})
}

// mend brings together what a move that failed has left apart.
func (c *cluster) mend() error {
	return recovers(func() string {
		if problem := redisCLI("--cluster", "fix", c.Nodes[0].Addr(), "--cluster-yes"); problem != "" {
			return problem
		}
		return redisCLI("--cluster", "check", c.Nodes[0].Addr())
	})
}

// redisCLI returns what redis-cli complains of.
func redisCLI(args ...string) string {
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("redis-cli %v: %v\n%s", args, err, out)
	}
	return ""
}
