package rediscluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// errLeft is why a subscription is given up whose node has left the cluster.
var errLeft = errors.New("the node of the subscription has left the cluster")

// glances is how often a subscription looks whether its node has.
const glances = time.Second

// Listen implements [redisroom.Client]. Every node hears what is said at any other,
// so that the one that serves the slot of the channel is left out while it fails. A
// node that has left the cluster answers still, but hears of nothing: it is left.
func (c *Client) Listen(ctx context.Context, channel string, up func(), message func(string)) error {
	addr, err := c.find(ctx, redisroom.Slot(channel))
	if err != nil {
		return err
	}
	addr = c.instead(addr)
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
	err = node.Listen(stay, channel, up, message)
	if stay.Err() == nil {
		c.suspect(addr, true)
		c.look()
	}
	return err
}

// instead returns a primary that has not failed lately: the given one, if it has not.
func (c *Client) instead(addr string) string {
	primaries, _ := c.config.Picture.nodes()
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
	tick := time.NewTicker(glances)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if primaries, _ := c.config.Picture.nodes(); len(primaries) > 0 && !slices.Contains(primaries, addr) {
			leave(errLeft)
			return
		}
		if c.config.Picture.age() > stale {
			c.look()
		}
	}
}
