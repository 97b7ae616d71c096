package redistest

import (
	"context"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Move is a slot of a cluster on its way to another node.
type Move struct {
	c        *Cluster
	slot     int64
	From, To *Server
}

// Move begins to move the slot of a key to another primary. No key has moved
// yet, but the slot is marked as moving on both sides.
func (c *Cluster) Move(key string) *Move {
	c.tb.Helper()
	slot, err := c.client.ClusterKeySlot(context.Background(), key).Result()
	c.must("slot of "+key, err)
	m := &Move{c: c, slot: slot, From: c.owner(slot), To: c.Nodes[0]}
	if m.To == m.From {
		m.To = c.Nodes[1]
	}
	c.must("importing", m.To.admin("CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(m.From)))
	c.must("migrating", m.From.admin("CLUSTER", "SETSLOT", slot, "MIGRATING", c.id(m.To)))
	return m
}

// One moves a single key, the first in alphabetical order.
func (m *Move) One() { m.keys(1) }

// Rest moves all keys that are left, but does not end the move.
func (m *Move) Rest() { m.keys(1 << 20) }

func (m *Move) keys(most int) {
	m.c.tb.Helper()
	keys, err := m.From.Client().ClusterGetKeysInSlot(context.Background(), int(m.slot), most).Result()
	m.c.must("keys in slot", err)
	for _, key := range keys {
		m.c.must("migrate", m.From.admin("MIGRATE", "127.0.0.1", strconv.Itoa(m.To.Port()), key, 0, patience.Milliseconds()))
	}
}

// End gives the slot to its new owner.
func (m *Move) End() {
	m.c.tb.Helper()
	for _, node := range []*Server{m.To, m.From} {
		m.c.must("setslot", node.admin("CLUSTER", "SETSLOT", m.slot, "NODE", m.c.id(m.To)))
	}
}

// owner returns the primary that serves a slot by its own account.
func (c *Cluster) owner(slot int64) *Server {
	c.tb.Helper()
	for _, node := range c.Nodes {
		shards, err := node.Client().ClusterShards(context.Background()).Result()
		if err != nil {
			continue
		}
		me := c.id(node)
		for _, shard := range shards {
			serves := slices.ContainsFunc(shard.Slots, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End })
			mine := slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool { return n.ID == me && n.Role == "master" })
			if serves && mine {
				return node
			}
		}
	}
	c.tb.Fatalf("redistest: nobody serves slot %d", slot)
	return nil
}

func (c *Cluster) id(node *Server) string {
	c.tb.Helper()
	id, err := node.Client().ClusterMyID(context.Background()).Result()
	c.must("id of a node", err)
	return id
}
