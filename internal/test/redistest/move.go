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

// Move is the migration of a slot of a cluster to another node. A step that fails
// fails the test.
type Move struct {
	*Transfer
	c *Cluster
}

// Move begins to move the slot of a key to another primary. No key has moved
// yet, but the slot is marked as moving on both sides.
func (c *Cluster) Move(key string) *Move {
	c.tb.Helper()
	t, err := c.Transfer(key, nil)
	c.must("begin to move "+key, err)
	return &Move{t, c}
}

// One moves a single key.
func (m *Move) One() {
	m.c.tb.Helper()
	m.c.must("move one", m.Transfer.One())
}

// Named moves the keys that begin with prefix.
func (m *Move) Named(prefix string) {
	m.c.tb.Helper()
	m.c.must("move "+prefix, m.keys(1<<20, prefix))
}

// Rest moves all keys that are left, but does not end the move.
func (m *Move) Rest() {
	m.c.tb.Helper()
	m.c.must("move the rest", m.Transfer.Rest())
}

// End assigns the slot to its new owner.
func (m *Move) End() {
	m.c.tb.Helper()
	m.c.must("end the move", m.Transfer.End())
}

// Transfer is a [Move] whose steps may fail, because the cluster has faults at the same
// time. They may be called on any goroutine.
type Transfer struct {
	slot     int64
	From, To *Server
}

// Transfer begins a [Transfer] of the slot of a key to a primary, or to any if
// it is nil.
func (c *Cluster) Transfer(key string, to *Server) (*Transfer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	slot, err := c.Nodes[0].Client().ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	t := &Transfer{slot: slot}
	for _, node := range c.Nodes {
		primary, serves := node.serves(ctx, slot)
		switch {
		case primary && serves:
			t.From = node
		case primary && (to == nil && t.To == nil || node == to):
			t.To = node
		}
	}
	if t.From == nil || t.To == nil {
		return nil, fmt.Errorf("slot %d: no node serves it, or it cannot move there", slot)
	}
	if err := t.set(ctx, t.To, "IMPORTING", t.From); err != nil {
		return nil, err
	}
	return t, t.set(ctx, t.From, "MIGRATING", t.To)
}

// One moves a single key, see [Move.One].
func (t *Transfer) One() error { return t.keys(1, "") }

// Rest moves all keys that are left, see [Move.Rest].
func (t *Transfer) Rest() error { return t.keys(1<<20, "") }

// keys moves those of the first keys that begin with prefix. The number of keys does not grow during that:
// a slot that is being moved accepts no new keys.
func (t *Transfer) keys(most int, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keys, err := t.From.Client().ClusterGetKeysInSlot(ctx, int(t.slot), most).Result()
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		err = errors.Join(err, t.From.admin("MIGRATE", t.To.Host(), strconv.Itoa(t.To.Port()), key, 0, patience.Milliseconds()))
	}
	return err
}

// End assigns the slot, see [Move.End]. The new owner gets it first, since only it can
// announce that to the cluster.
func (t *Transfer) End() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(t.set(ctx, t.To, "NODE", t.To), t.set(ctx, t.From, "NODE", t.To))
}

// set sets the state of the slot on a node.
func (t *Transfer) set(ctx context.Context, at *Server, what string, node *Server) error {
	id, err := node.Client().ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	return at.admin("CLUSTER", "SETSLOT", t.slot, what, id)
}

// Settled reports whether all nodes that answer know the new owner.
func (t *Transfer) Settled(c *Cluster) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return !slices.ContainsFunc(c.Nodes, func(node *Server) bool {
		shards, err := node.Client().ClusterShards(ctx).Result()
		return err == nil && !slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
			owns := func(n redis.Node) bool { return n.Port == int64(t.To.port) && n.Role == "master" }
			return holds(s, t.slot) && slices.ContainsFunc(s.Nodes, owns)
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
