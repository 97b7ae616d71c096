package rediscluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// errLeft ends a subscription whose node has left the cluster.
var errLeft = errors.New("the node of the subscription has left the cluster")

// leftInterval is how often a subscription checks that its node is still in the cluster.
const leftInterval = time.Second

// Listen implements [redisroom.Client]. Every node delivers the messages published at any
// other node, so another node is used while the one that serves the channel's slot fails. A
// node that has left the cluster still answers but delivers no messages, so its
// subscriptions are moved.
func (c *Client) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	addr, err := c.find(ctx, redisroom.Slot(channels[0]))
	if err != nil {
		return err
	}
	addr = c.alternative(addr)
	node, err := c.node(addr)
	if err != nil {
		return err
	}
	stay, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	c.mu.Lock()
	if !c.closed {
		c.work.Go(func() { c.watch(stay, addr, leave) })
	}
	c.mu.Unlock()
	err = node.Listen(stay, channels, up, message)
	if stay.Err() == nil {
		c.suspect(addr, true)
		c.discover()
	}
	return err
}

// alternative returns a primary that has not failed lately: the given one, if it has not.
func (c *Client) alternative(addr string) string {
	primaries, _ := c.config.Topology.nodes()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range append([]string{addr}, shuffled(primaries)...) {
		if !c.isSuspect(other) {
			return other
		}
	}
	return addr
}

// watch ends a subscription when its node has left.
func (c *Client) watch(ctx context.Context, addr string, leave context.CancelCauseFunc) {
	tick := time.NewTicker(leftInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if primaries, _ := c.config.Topology.nodes(); len(primaries) > 0 && !slices.Contains(primaries, addr) {
			leave(errLeft)
			return
		}
		if c.config.Topology.age() > maxAge {
			c.discover()
		}
	}
}
