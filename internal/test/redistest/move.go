package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Move is the migration of a slot of a cluster to another node. Its steps may be called on any
// goroutine.
type Move struct {
	slot     int64
	From, To *Server
}

// Move begins to move the slot of a key to another primary, and fails the test if it cannot. No key
// has moved yet, but the slot is marked as moving on both sides.
func (c *Cluster) Move(key string) *Move {
	c.tb.Helper()
	m, err := c.TryMove(key, nil)
	c.must("begin to move "+key, err)
	return m
}

// TryMove is [Cluster.Move] to a primary, or to any if it is nil.
func (c *Cluster) TryMove(key string, to *Server) (*Move, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	slot, err := c.Nodes[0].Client().ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	m := &Move{slot: slot}
	for _, node := range c.Nodes {
		primary, serves := node.serves(ctx, slot)
		switch {
		case primary && serves:
			m.From = node
		case primary && (to == nil && m.To == nil || node == to):
			m.To = node
		}
	}
	if m.From == nil || m.To == nil {
		return nil, fmt.Errorf("slot %d: no node serves it, or it cannot move there", slot)
	}
	if err := m.set(ctx, m.To, "IMPORTING", m.From); err != nil {
		return nil, err
	}
	return m, m.set(ctx, m.From, "MIGRATING", m.To)
}

// One moves a single key.
func (m *Move) One() error { return m.keys(1, "") }

// Named moves the keys that begin with prefix.
func (m *Move) Named(prefix string) error { return m.keys(1<<20, prefix) }

// Rest moves all keys that are left, but does not end the move.
func (m *Move) Rest() error { return m.Named("") }

// keys moves those of the first keys that begin with prefix. The number of keys does not grow during that:
// a slot that is being moved accepts no new keys.
func (m *Move) keys(most int, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keys, err := m.From.Client().ClusterGetKeysInSlot(ctx, int(m.slot), most).Result()
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		err = errors.Join(err, m.From.admin("MIGRATE", m.To.Host(), strconv.Itoa(m.To.Port()), key, 0, patience.Milliseconds()))
	}
	return err
}

// End assigns the slot to its new owner. The new owner gets it first, since only it can
// announce that to the cluster.
func (m *Move) End() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(m.set(ctx, m.To, "NODE", m.To), m.set(ctx, m.From, "NODE", m.To))
}

// set sets the state of the slot on a node.
func (m *Move) set(ctx context.Context, at *Server, what string, node *Server) error {
	id, err := node.Client().ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	return at.admin("CLUSTER", "SETSLOT", m.slot, what, id)
}

// Settled reports whether all nodes that answer know the new owner.
func (m *Move) Settled(c *Cluster) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return !slices.ContainsFunc(c.Nodes, func(node *Server) bool {
		shards, err := node.Client().ClusterShards(ctx).Result()
		return err == nil && !slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
			owns := func(n redis.Node) bool { return n.Port == int64(m.To.port) && n.Role == "master" }
			return holds(s, m.slot) && slices.ContainsFunc(s.Nodes, owns)
		})
	})
}

func holds(s redis.ClusterShard, slot int64) bool {
	return slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End })
}

// serves returns the node's own view of whether it is a primary, and whether it serves the
// slot.
func (s *Server) serves(ctx context.Context, slot int64) (primary, serves bool) {
	shards, err := s.Client().ClusterShards(ctx).Result()
	if err != nil {
		return false, false
	}
	me, err := s.Client().ClusterMyID(ctx).Result()
	if err != nil {
		return false, false
	}
	for _, shard := range shards {
		if slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool { return n.ID == me && n.Role == "master" }) {
			return true, holds(shard, slot)
		}
	}
	return false, false
}
