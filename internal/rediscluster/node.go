package rediscluster

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// node is the client of one node, and when it last answered.
type node struct {
	redisroom.Client
	cluster *Client
	addr    string
	// asked is how many requests are under way; heard is when, in ns, a request was last
	// answered, or the oldest of them sent.
	asked, heard atomic.Int64
}

func (n *node) begin() {
	if n.asked.Add(1) == 1 {
		n.heard.Store(time.Now().UnixNano())
	}
}

func (n *node) end() {
	n.heard.Store(time.Now().UnixNano())
	n.asked.Add(-1)
}

// silence returns the time for which requests under way have had no answer.
func (n *node) silence() time.Duration {
	if n.asked.Load() == 0 {
		return 0
	}
	return max(time.Duration(time.Now().UnixNano()-n.heard.Load()), 1)
}

func (n *node) Do(ctx context.Context, words []string) (any, error) {
	n.begin()
	defer n.end()
	reply, err := n.Client.Do(ctx, words)
	return reply, n.whileClosing(err)
}

func (n *node) Run(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	n.begin()
	defer n.end()
	n.Client.Run(ctx, cmds, want, func(i int, a redisroom.Answer) {
		a.Err = n.whileClosing(a.Err)
		each(i, a)
	})
}

// errRetired is the error of a request whose node was retired in the meantime.
var errRetired = errors.New("the node has left the cluster")

// whileClosing replaces the error of a node's closed client, since the cluster's client is
// open. It is unknown whether the request was sent.
func (n *node) whileClosing(err error) error {
	if errors.Is(err, driver.ErrClosed) && !n.cluster.isClosed() {
		return errRetired
	}
	return err
}

// node returns the client of the node at addr.
func (c *Client) node(addr string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, redisroom.ErrClosed
	}
	n := c.nodes[addr]
	if n == nil {
		n = &node{Client: c.config.Open(addr), cluster: c, addr: addr}
		c.nodes[addr] = n
	}
	return n, nil
}

// adaptNodes cuts the connections to nodes that have failed and are no longer primaries,
// so that requests that wait there, and subscriptions, go elsewhere. It closes clients of
// nodes that have left once their requests are over.
func (c *Client) adaptNodes() {
	primaries, replicas := c.config.Topology.nodes()
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, n := range c.nodes {
		if slices.Contains(primaries, addr) {
			continue
		}
		if !c.closed && (c.led[addr] && c.isSuspect(addr) || n.silence() > c.config.Timeout/hedgeAfter) {
			c.work.Go(n.evict)
		}
		if !c.closed && !slices.Contains(replicas, addr) && !slices.Contains(c.config.Seeds, addr) {
			c.retire(addr, n)
		}
	}
	c.led = make(map[string]bool)
	for _, addr := range primaries {
		c.led[addr] = true
	}
}

// evict cuts the connections of a node until no request is under way there: more may have
// queued.
func (n *node) evict() {
	end := time.Now().Add(n.cluster.config.Timeout)
	for n.Cut(); n.asked.Load() > 0 && time.Now().Before(end); n.Cut() {
		time.Sleep(evictPause)
	}
}

// evictPause is the pause between two cuts.
const evictPause = 5 * time.Millisecond

// retire closes the client of a node later. The caller holds mu.
func (c *Client) retire(addr string, n *node) {
	delete(c.nodes, addr)
	delete(c.suspects, addr)
	c.gone += n.Changes()
	c.retired[n] = time.AfterFunc(3*c.config.Timeout, func() {
		_ = n.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.retired, n)
	})
}

// checkAfter schedules a check of the nodes for silence, unless one is scheduled.
func (c *Client) checkAfter(after time.Duration) {
	if c.armed.CompareAndSwap(false, true) {
		time.AfterFunc(after, c.checkSilence)
	}
}

// checkSilence asks for the topology if a node does not answer: the node may have been
// replaced, which only the topology shows.
func (c *Client) checkSilence() {
	c.armed.Store(false)
	limit := c.config.Timeout / hedgeAfter
	var longest time.Duration
	c.mu.Lock()
	for addr, n := range c.nodes {
		silence := n.silence()
		if silence > limit {
			c.suspects[addr] = time.Now()
		}
		longest = max(longest, silence)
	}
	c.mu.Unlock()
	switch {
	case longest > limit:
		c.discover()
		c.checkAfter(4 * limit)
	case longest > 0:
		c.checkAfter(limit)
	}
}
