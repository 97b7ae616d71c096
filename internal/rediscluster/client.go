// Package rediscluster is a client of a Redis or Valkey Cluster: it finds the node that
// serves a slot, and sends requests there by clients of single servers.
//
// The cluster clients of the libraries do not suffice. They ask one node at a time for
// the topology, which may be one that hangs, and each client asks separately. They keep
// subscriptions at nodes that have left. They do not report whether a request was sent.
// This package does this in the same way for both libraries.
package rediscluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// maxHops bounds the redirections that one command follows.
const maxHops = 3

// Config is the configuration of a client.
type Config struct {
	// Seeds are addresses of nodes, as host:port.
	Seeds []string
	// Timeout bounds one request, with all that it takes.
	Timeout time.Duration
	// Open returns a client of the server at addr. It need not connect.
	Open func(addr string) redisroom.Client
	// Topology is shared by clients of the same cluster.
	Topology *Topology
	// MayBeOne allows the single seed to be a server without a cluster. The client
	// finds that out.
	MayBeOne bool
	// Look, if it is not nil, returns the topology; nodes are not asked.
	Look func(context.Context) ([]Range, error)
}

// Client is a client of a cluster. It implements [redisroom.Client].
type Client struct {
	config Config
	hops   atomic.Uint64 // redirections followed
	armed  atomic.Bool   // a check for silence is to come

	mu       sync.Mutex
	nodes    map[string]*node
	suspects map[string]time.Time // when nodes have failed
	gone     uint64               // changes of nodes that were closed
	retired  map[*node]*time.Timer
	looking  *discovery      // nil if no discovery is under way
	looked   time.Time       // when the last one had ended
	led      map[string]bool // primaries at the last look
	closed   bool
	work     sync.WaitGroup // goroutines of the client
}

var _ redisroom.Client = (*Client)(nil)

// New returns a client. It makes no connection.
func New(config Config) *Client {
	c := &Client{
		config: config, nodes: make(map[string]*node), suspects: make(map[string]time.Time),
		retired: make(map[*node]*time.Timer),
	}
	config.Topology.join(c)
	return c
}

// Changes implements [redisroom.Client].
func (c *Client) Changes() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.gone + c.hops.Load() + c.config.Topology.Changes()
	for _, node := range c.nodes {
		n += node.Changes()
	}
	return n
}

// Cluster implements [redisroom.Client]. It reports true until the first answer is known.
func (c *Client) Cluster() bool { return !c.config.Topology.single.Load() }

// Sentinels implements [redisroom.Client].
func (c *Client) Sentinels() (addrs []string, primary string) { return nil, "" }

// Connect implements [redisroom.Client].
func (c *Client) Connect(slot int) {
	if addr, _ := c.config.Topology.primary(slot); addr != "" {
		if node, err := c.node(addr); err == nil {
			node.Connect(slot)
		}
	}
}

// Cut implements [redisroom.Client].
func (c *Client) Cut() {
	c.mu.Lock()
	nodes := slices.Collect(maps.Values(c.nodes))
	c.mu.Unlock()
	for _, n := range nodes {
		n.Cut()
	}
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// find returns the address of the node that serves a slot. Without a topology it waits for
// one. If the topology is old, find requests a new one and waits briefly for it, since a
// node that has been replaced would cost a timeout.
func (c *Client) find(ctx context.Context, slot int) (string, error) {
	addr, known := c.config.Topology.primary(slot)
	if !known {
		if err := c.discover().wait(ctx); err != nil {
			return "", err
		}
		addr, _ = c.config.Topology.primary(slot)
	} else if c.config.Topology.age() > maxAge && !c.config.Topology.single.Load() {
		c.refresh(ctx)
		addr, _ = c.config.Topology.primary(slot)
	}
	if addr == "" {
		c.discover()
		return "", fmt.Errorf("%w: no node serves slot %d; see CLUSTER INFO", driver.ErrUnavailable, slot)
	}
	return addr, nil
}

// Do implements [redisroom.Client].
func (c *Client) Do(ctx context.Context, words []string) (any, error) {
	r := request{Client: c, words: words, began: time.Now()}
	addr, err := c.find(ctx, r.slot())
	if err != nil {
		return nil, err
	}
	node, err := c.node(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.withRemaining(ctx, r.began)
	defer cancel()
	c.checkAfter(c.config.Timeout / hedgeAfter)
	reply, err := node.Do(ctx, words)
	if err != nil {
		a := r.follow(ctx, addr, redisroom.Answer{Err: err})
		return a.Reply, a.Err
	}
	return reply, nil
}

// withRemaining bounds the rest of a request that had to wait before it could be sent. The
// nodes' clients bound other requests.
func (c *Client) withRemaining(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	if time.Since(began) < c.config.Timeout/hedgeAfter {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, began.Add(c.config.Timeout))
}

// answer is the outcome of one of many commands.
type answer struct {
	i int
	redisroom.Answer
}

// Run implements [redisroom.Client]. It runs the commands on all nodes at once, and reports
// the answers of one node without waiting for another.
func (c *Client) Run(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	began := time.Now()
	answers := make(chan answer, len(cmds))
	nodes := c.byNode(ctx, cmds, answers)
	ctx, cancel := c.withRemaining(ctx, began)
	defer cancel()
	for addr, which := range nodes {
		go c.runNode(ctx, addr, cmds, which, func(i int, a redisroom.Answer) {
			if a.Err != nil {
				r := request{Client: c, words: cmds[i], want: want, began: began}
				a = r.follow(ctx, addr, a)
			}
			answers <- answer{i, a}
		}, want)
	}
	for range cmds {
		a := <-answers
		each(a.i, a.Answer)
	}
}

// byNode sorts the commands by the nodes that serve them. It answers commands without a
// node.
func (c *Client) byNode(ctx context.Context, cmds [][]string, answers chan<- answer) map[string][]int {
	nodes := make(map[string][]int)
	for i, cmd := range cmds {
		addr, err := c.find(ctx, redisroom.Slot(cmd[redisroom.FirstKey]))
		if err != nil {
			answers <- answer{i, redisroom.Answer{Err: err}}
			continue
		}
		nodes[addr] = append(nodes[addr], i)
	}
	return nodes
}

// runNode runs the commands with the indexes which on one node.
func (c *Client) runNode(ctx context.Context, addr string, cmds [][]string, which []int, each func(int, redisroom.Answer), want redisroom.Acks) {
	node, err := c.node(addr)
	if err != nil {
		for _, i := range which {
			each(i, redisroom.Answer{Err: err})
		}
		return
	}
	some := make([][]string, len(which))
	for k, i := range which {
		some[k] = cmds[i]
	}
	c.checkAfter(c.config.Timeout / hedgeAfter)
	node.Run(ctx, some, want, func(k int, a redisroom.Answer) { each(which[k], a) })
}

// Nodes implements [redisroom.Client]. It asks the cluster again, and returns the known
// topology if no node answers.
func (c *Client) Nodes(ctx context.Context) ([]string, error) {
	err := c.discover().wait(ctx)
	primaries, _ := c.config.Topology.nodes()
	if len(primaries) > 0 && !errors.Is(err, driver.ErrClosed) {
		return primaries, nil
	}
	return nil, err
}

// Ask implements [redisroom.Client].
func (c *Client) Ask(ctx context.Context, addr string, words ...string) (any, error) {
	node, err := c.node(addr)
	if err != nil {
		return nil, err
	}
	return node.Ask(ctx, addr, words...)
}

// Visit implements [redisroom.Client].
func (c *Client) Visit(ctx context.Context, addr string, words ...string) (any, error) {
	if addr == "" {
		if addr, _ = c.config.Topology.primary(0); addr == "" {
			return nil, c.unknownError(nil)
		}
	}
	node, err := c.node(addr)
	if err != nil {
		return nil, err
	}
	return node.Visit(ctx, "", words...)
}

// Close implements [redisroom.Client].
func (c *Client) Close() error {
	c.config.Topology.leave(c)
	c.mu.Lock()
	c.closed = true
	nodes := slices.Collect(maps.Values(c.nodes))
	for node, timer := range c.retired {
		timer.Stop()
		nodes = append(nodes, node)
	}
	c.mu.Unlock()
	var errs []error
	for _, node := range nodes {
		errs = append(errs, node.Close())
	}
	c.work.Wait()
	return oneline.Join(errs...)
}
