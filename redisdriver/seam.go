package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// seam is the seam of internal/redisroom on go-redis.
type seam struct {
	single  *redis.Client        // nil for a cluster
	cluster *redis.ClusterClient // nil for a single server
	conns   *interrupt.Conns
	found   atomic.Bool   // the nodes of the cluster are known
	hops    atomic.Uint64 // redirections followed
	timeout time.Duration
	batch   batcher  // of requests to single
	lookout *lookout // nil unless there are sentinels
	// sentinels are those that are known; a failover client does not tell.
	sentinels sentinels
	// closeToo closes what single was derived from, if that is ours too.
	closeToo func() error
}

var _ redisroom.Client = (*seam)(nil)

// Changes implements [redisroom.Client].
func (c *seam) Changes() uint64 { return c.conns.Made() + c.hops.Load() }

// Cluster implements [redisroom.Client].
func (c *seam) Cluster() bool { return c.cluster != nil }

// Do implements [redisroom.Client].
func (c *seam) Do(ctx context.Context, words []string) (any, error) {
	if c.cluster == nil {
		return c.batch.do(ctx, words)
	}
	try := c.begin(ctx)
	defer try.End()
	return c.doCluster(try, words)
}

// begin returns the context for a call: it ends with ctx, and after the
// timeout at the latest.
func (c *seam) begin(ctx context.Context) *interrupt.Call { return c.conns.Begin(ctx, c.timeout) }

// arguments converts a command without copying its words.
func arguments(words []string) []any {
	args := make([]any, len(words))
	for i := range words {
		args[i] = &words[i]
	}
	return args
}

// result gives the outcome of a command the form that the seam asks for.
func (c *seam) result(ctx *interrupt.Call, cmd *redis.Cmd, err error) (any, error) {
	if err != nil {
		if err = c.failure(ctx.Context, err); err != nil {
			return nil, err
		}
	}
	return value(cmd.Val()), nil
}

// value replaces the errors inside a reply.
func value(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = value(v[i])
		}
	case map[any]any:
		var pairs []any
		for name, item := range v {
			pairs = append(pairs, name, value(item))
		}
		return pairs
	case redis.Error:
		return redisroom.ReplyError(v.Error())
	}
	return v
}

// failure gives an error of go-redis the form that the seam asks for.
func (c *seam) failure(ctx context.Context, err error) error {
	var reply redis.Error
	var op *net.OpError
	var dial *dialError
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return nil
	case errors.As(err, &reply):
		return redisroom.ReplyError(reply.Error())
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", driver.ErrClosed, driver.ErrUnavailable)
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dial):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fmt.Errorf("%w: no free connection: %w", driver.ErrUnavailable, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// Run implements [redisroom.Client].
func (c *seam) Run(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	if c.cluster != nil {
		c.runCluster(ctx, cmds, want, each)
		return
	}
	all := make([]int, len(cmds))
	for i := range all {
		all[i] = i
	}
	try := c.begin(ctx)
	defer try.End()
	sent, wait := c.pipeline(try, c.single, cmds, all, want)
	for k, cmd := range sent {
		reply, err := c.result(try, cmd, cmd.Err())
		each(k, c.answer(try, reply, err, wait))
	}
}

// pipeline runs those of the commands that which names on one node, and the
// WAIT for what they wrote, if acks are wanted.
func (c *seam) pipeline(ctx *interrupt.Call, node *redis.Client, cmds [][]string, which []int, want redisroom.Acks) (sent []*redis.Cmd, wait *redis.Cmd) {
	sent = make([]*redis.Cmd, len(which))
	pipe := node.Pipeline()
	for k, i := range which {
		sent[k] = redis.NewCmd(ctx, arguments(cmds[i])...)
		_ = pipe.Process(ctx, sent[k])
	}
	wait = addWait(ctx, pipe, want)
	_, _ = pipe.Exec(ctx) // every command has its own error
	return sent, wait
}

// addWait puts a WAIT at the end of a pipeline: it counts for the connection
// that wrote. It returns nil if no acks are wanted.
func addWait(ctx *interrupt.Call, pipe redis.Pipeliner, want redisroom.Acks) *redis.Cmd {
	if want.Replicas == 0 {
		return nil
	}
	deadline, _ := ctx.Deadline()
	wait := redis.NewCmd(ctx, arguments(want.Wait(deadline))...)
	_ = pipe.Process(ctx, wait)
	return wait
}

// answer joins the outcome of a command with that of its WAIT, if any.
func (c *seam) answer(ctx *interrupt.Call, reply any, err error, wait *redis.Cmd) redisroom.Answer {
	a := redisroom.Answer{Reply: reply, Err: err}
	if wait != nil {
		n, err := wait.Int()
		a.Acked, a.AckErr = n, c.failure(ctx.Context, err)
	}
	return a
}

// Nodes implements [redisroom.Client].
func (c *seam) Nodes(ctx context.Context) ([]string, error) {
	if c.cluster == nil {
		return []string{c.name()}, nil
	}
	try := c.begin(ctx)
	defer try.End()
	return c.primaries(try)
}

func (c *seam) name() string {
	if addr := c.single.Options().Addr; addr != behindSentinels {
		return addr
	}
	return redisroom.Primary
}

// Sentinels implements [redisroom.Client].
func (c *seam) Sentinels() (addrs []string, primary string) {
	return c.sentinels.addrs, c.sentinels.primary
}

// Ask implements [redisroom.Client].
func (c *seam) Ask(ctx context.Context, name string, words ...string) (any, error) {
	try := c.begin(ctx)
	defer try.End()
	cmd := redis.NewCmd(try, arguments(words)...)
	if slices.Contains(c.sentinels.addrs, name) {
		sentinel := c.sentinels.connect(name)
		defer sentinel.Close()
		return c.result(try, cmd, sentinel.Process(try, cmd))
	}
	node := c.single
	if c.cluster != nil {
		var err error
		if node, err = c.primary(try, name); err != nil {
			return nil, c.failure(ctx, err)
		}
	}
	return c.result(try, cmd, node.Process(try, cmd))
}

// Scan implements [redisroom.Client].
func (c *seam) Scan(ctx context.Context, name string, cursor uint64, match string, count int) ([]string, uint64, error) {
	try := c.begin(ctx)
	defer try.End()
	node := c.single
	if c.cluster != nil {
		var err error
		if node, err = c.primary(try, name); err != nil {
			return nil, 0, c.failure(ctx, err)
		}
	}
	keys, next, err := node.Scan(try, cursor, match, int64(count)).Result()
	return keys, next, c.failure(ctx, err)
}

// Close implements [redisroom.Client].
func (c *seam) Close() error {
	if c.cluster != nil {
		return c.cluster.Close()
	}
	c.lookout.end()
	err := c.single.Close()
	if c.closeToo != nil {
		err = errors.Join(err, c.closeToo())
	}
	c.batch.wg.Wait()
	return err
}
