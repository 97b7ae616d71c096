package redistest

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is the number of hash slots of a cluster.
const slots = 16384

// Cluster is a Redis Cluster of primaries, and of the replicas added to it.
type Cluster struct {
	// Nodes are the primaries, in the order of their slots, and then the
	// replicas, in the order in which they were added.
	Nodes []*Server

	tb     testing.TB
	client *redis.ClusterClient
}

// StartCluster starts n primaries that share the slots evenly and waits until
// each of them sees a healthy cluster. A node counts as dead after a
// second without an answer, and the other nodes go on serving their slots.
func StartCluster(tb testing.TB, n int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for i := range n {
		node := c.startNode()
		c.Nodes = append(c.Nodes, node)
		c.must("set-config-epoch", node.admin("CLUSTER", "SET-CONFIG-EPOCH", i+1))
		c.must("addslots", node.admin(addSlots(i*slots/n, (i+1)*slots/n)...))
		c.introduce(node)
	}
	c.await()

	c.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	tb.Cleanup(func() { _ = c.client.Close() })
	return c
}

// startNode starts a node outside any cluster. All nodes of a cluster have one host, because
// a cluster with cluster-preferred-endpoint-type unknown-endpoint sends only ports.
func (c *Cluster) startNode() *Server {
	c.tb.Helper()
	node := new(Server)
	if len(c.Nodes) > 0 {
		node.host = c.Nodes[0].Host()
	}
	return start(c.tb, node, append(slices.Clone(defaults),
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", "1000",
		"--cluster-require-full-coverage", "no",
	))
}

// addSlots returns the command that assigns the slots from first up to end.
func addSlots(first, end int) []any {
	args := []any{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot < end; slot++ {
		args = append(args, slot)
	}
	return args
}

// AddReplica adds a replica of a primary and waits until it is in step.
func (c *Cluster) AddReplica(primary *Server) *Server {
	c.tb.Helper()
	return c.AddReplicas(primary)[0]
}

// AddReplicas adds a replica of each of the primaries and waits until all are in
// step. Several at once take no longer than a single replica.
func (c *Cluster) AddReplicas(primaries ...*Server) []*Server {
	c.tb.Helper()
	replicas := make([]*Server, len(primaries))
	for i := range replicas {
		replicas[i] = c.startNode()
		c.Nodes = append(c.Nodes, replicas[i])
		c.introduce(replicas[i])
	}
	c.await()
	for i, primary := range primaries {
		id, err := primary.Client().ClusterMyID(context.Background()).Result()
		c.must("id of a node", err)
		c.must("replicate", replicas[i].admin("CLUSTER", "REPLICATE", id))
	}
	for i, primary := range primaries {
		awaitReplica(c.tb, primary, replicas[i])
	}
	return replicas
}

// introduce connects the first node to another one; the rest of the cluster
// learns of it by gossip.
func (c *Cluster) introduce(node *Server) {
	c.tb.Helper()
	if first := c.Nodes[0]; first != node {
		c.must("meet", first.admin("CLUSTER", "MEET", node.Host(), node.Port()))
	}
}

// await waits until every node has met all nodes and reports a healthy cluster. If a
// pause of the machine lasts longer than the nodes' timeout of a second, they
// forget each other, so await introduces them again.
func (c *Cluster) await() {
	c.tb.Helper()
	introduced := time.Now()
	for _, node := range c.Nodes {
		healthy := func() bool {
			text, err := node.Client().ClusterInfo(context.Background()).Result()
			info := parseInfo(text)
			if err == nil && info["cluster_state"] == "ok" &&
				info["cluster_slots_ok"] == strconv.Itoa(slots) &&
				info["cluster_known_nodes"] == strconv.Itoa(len(c.Nodes)) {
				return true
			}
			if time.Since(introduced) > 3*time.Second {
				for _, other := range c.Nodes {
					c.introduce(other)
				}
				introduced = time.Now()
			}
			return false
		}
		await(c.tb, "cluster not healthy", healthy)
	}
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Client returns a client of the whole cluster for looking at it and for
// administering it.
func (c *Cluster) Client() *redis.ClusterClient { return c.client }

// Owner returns the primary that serves the key's slot.
func (c *Cluster) Owner(key string) *Server {
	c.tb.Helper()
	primary, err := c.client.MasterForKey(context.Background(), key)
	c.must("find the owner of "+key, err)
	addr := primary.Options().Addr
	i := slices.IndexFunc(c.Nodes, func(s *Server) bool { return s.Addr() == addr })
	if i < 0 {
		c.tb.Fatalf("redistest: %s, which owns %q, is not a node of this cluster", addr, key)
	}
	return c.Nodes[i]
}

func (c *Cluster) must(what string, err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("redistest: cluster: %s: %v", what, err)
	}
}

// admin runs a command and returns only its error.
func (s *Server) admin(args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.Client().Do(ctx, args...).Err()
}
