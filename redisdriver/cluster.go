package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// The cluster client of go-redis finds the nodes; commands go to the nodes'
// own clients. It would follow redirections by itself, but also repeat a
// command whose answer was lost: then a release would be answered "gone".

const (
	// firstKey is the index of the first key in a command.
	firstKey = 3
	// maxHops bounds the redirections that one command follows.
	maxHops = 3
)

// doCluster runs one command on the node that serves its key.
func (c *seam) doCluster(ctx *interrupt.Call, words []string) (any, error) {
	cmd := redis.NewCmd(ctx, arguments(words)...)
	node, err := c.primaryOf(ctx, words[firstKey])
	if err == nil {
		err = node.Process(ctx, cmd)
	}
	a := c.follow(ctx, cmd, err, redisroom.Acks{}, nil)
	return a.Reply, a.Err
}

// follow goes where a command was redirected to, and returns its outcome.
func (c *seam) follow(ctx *interrupt.Call, cmd *redis.Cmd, err error, want redisroom.Acks, wait *redis.Cmd) redisroom.Answer {
	for range maxHops {
		if addr, moved := redis.IsMovedError(err); moved {
			cmd, wait, err = c.resend(ctx, addr, cmd, want)
		} else if addr, ask := redis.IsAskError(err); ask {
			cmd, wait, err = c.resend(ctx, addr, cmd, want, redis.NewCmd(ctx, "ASKING"))
		} else {
			break
		}
		c.hops.Add(1)
	}
	if err != nil {
		c.cluster.ReloadState(ctx) // in the background, and not too often
	}
	reply, err := c.result(ctx, cmd, err)
	return c.answer(ctx, reply, err, wait)
}

// resend sends a command to the primary at addr, after the given ones.
func (c *seam) resend(ctx *interrupt.Call, addr string, cmd *redis.Cmd, want redisroom.Acks, before ...*redis.Cmd) (again, wait *redis.Cmd, err error) {
	again = redis.NewCmd(ctx, cmd.Args()...)
	node, err := c.primary(ctx, addr)
	if err != nil {
		return again, nil, err
	}
	pipe := node.Pipeline()
	for _, b := range before {
		_ = pipe.Process(ctx, b)
	}
	_ = pipe.Process(ctx, again)
	wait = addWait(ctx, pipe, want)
	_, _ = pipe.Exec(ctx)
	return again, wait, again.Err()
}

// primaryOf returns the client of the primary that serves a key.
func (c *seam) primaryOf(ctx *interrupt.Call, key string) (*redis.Client, error) {
	if c.found.Load() {
		return c.cluster.MasterForKey(ctx, key)
	}
	return c.find(ctx, key)
}

// seekers is how often at most a cluster is asked at once where everything is.
const seekers = 8

// find is primaryOf for the first time, when the cluster has to be asked where
// everything is. go-redis asks one node after another, in an order of chance, and
// one that hangs would take all the time there is. So after a while it is asked
// again beside that, in another order. What is asked in vain ends with the time
// of the call, or with the client.
func (c *seam) find(ctx *interrupt.Call, key string) (*redis.Client, error) {
	type result struct {
		node *redis.Client
		err  error
	}
	results := make(chan result, seekers)
	seek := func() {
		node, err := c.cluster.MasterForKey(ctx, key)
		results <- result{node, err}
	}
	again := time.NewTicker(c.timeout / (2 * seekers))
	defer again.Stop()
	go seek()
	for asked, answered := 1, 0; ; {
		select {
		case r := <-results:
			if answered++; r.err == nil {
				c.found.Store(true)
			}
			if r.err == nil || answered == asked {
				return r.node, r.err
			}
		case <-again.C:
			if asked < seekers {
				asked++
				go seek()
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// eachPrimary calls f for the client of every primary, one at a time, after
// asking the cluster anew which they are.
func (c *seam) eachPrimary(ctx *interrupt.Call, f func(*redis.Client)) error {
	if _, err := c.primaryOf(ctx, ""); err != nil {
		return err
	}
	// A node that hangs must not take all the time: what is known is good enough.
	part, cancel := context.WithTimeout(ctx, c.timeout/4)
	defer cancel()
	var mu sync.Mutex
	return c.cluster.ForEachMaster(part, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		f(node)
		return nil
	})
}

// primaries returns the addresses of the primaries, sorted.
func (c *seam) primaries(ctx *interrupt.Call) ([]string, error) {
	var addrs []string
	err := c.eachPrimary(ctx, func(node *redis.Client) { addrs = append(addrs, node.Options().Addr) })
	slices.Sort(addrs)
	return addrs, c.failure(ctx.Context, err)
}

// primary returns the client of the primary at addr.
func (c *seam) primary(ctx *interrupt.Call, addr string) (found *redis.Client, err error) {
	err = c.eachPrimary(ctx, func(node *redis.Client) {
		if addr == node.Options().Addr || addr == node.NodeAddress() {
			found = node
		}
	})
	if found == nil && err == nil {
		err = fmt.Errorf("%w: %s is not a primary of the cluster, as far as its nodes tell", driver.ErrUnavailable, addr)
	}
	return found, err
}

// answer is the outcome of one of many commands.
type answer struct {
	i int
	redisroom.Answer
}

// runCluster runs the commands on all nodes at once, and reports those of one
// node without waiting for another.
func (c *seam) runCluster(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	answers := make(chan answer, len(cmds))
	for node, which := range c.byNode(ctx, cmds, answers) {
		go func() {
			try := c.begin(ctx)
			defer try.End()
			sent, wait := c.pipeline(try, node, cmds, which, want)
			for k, cmd := range sent {
				answers <- answer{which[k], c.follow(try, cmd, cmd.Err(), want, wait)}
			}
		}()
	}
	for range cmds {
		a := <-answers
		each(a.i, a.Answer)
	}
}

// byNode sorts the commands by the nodes that serve them; those for which
// there is none it answers.
func (c *seam) byNode(ctx context.Context, cmds [][]string, answers chan<- answer) map[*redis.Client][]int {
	try := c.begin(ctx)
	defer try.End()
	nodes := make(map[*redis.Client][]int)
	for i, cmd := range cmds {
		node, err := c.primaryOf(try, cmd[firstKey])
		if err != nil {
			answers <- answer{i, redisroom.Answer{Err: c.failure(ctx, err)}}
			continue
		}
		nodes[node] = append(nodes[node], i)
	}
	return nodes
}
