package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// lanes is how many requests have separate connections before requests share a pipeline.
const lanes = 4

// adapter implements [redisroom.Client] over go-redis, for one server.
type adapter struct {
	single  *redis.Client
	conns   *interrupt.Conns
	base    redis.Options // as the application gave them
	direct  dialFunc      // to any server, if base leads to one that sentinels name
	timeout time.Duration
	batch   redisroom.Batcher // of requests to single
	// greeted is set when Connect has connected to single.
	greeted  atomic.Bool
	attempts redisroom.Pace
	named    atomic.Value // the address of the primary that the sentinels have named last
	// sentinels are the known sentinels; a failover client does not expose them.
	sentinels sentinels
	// closeToo closes the client from which single was derived, if the driver owns it.
	closeToo func() error
}

var _ redisroom.Client = (*adapter)(nil)

func (c *adapter) Changes() uint64 { return c.conns.Made() }

func (c *adapter) Connect(int) {
	if c.greeted.Load() || !c.attempts.Due() {
		return
	}
	c.batch.Start(func(ctx context.Context) {
		_, err := c.one(ctx, []string{"PING"})
		c.greeted.Store(err == nil)
	})
}

func (c *adapter) Cut() { c.conns.Cut() }

func (c *adapter) Cluster() bool { return false }

func (c *adapter) Do(ctx context.Context, words []string) (any, error) { return c.batch.Do(ctx, words) }

// one runs a single request.
func (c *adapter) one(ctx context.Context, words []string) (any, error) {
	var s struct { // they live equally long
		try interrupt.Call
		cmd command
	}
	c.conns.BeginIn(ctx, &s.try, c.timeout)
	defer s.try.End()
	s.cmd.init(&s.try, words)
	return c.result(&s.try, &s.cmd, c.single.Process(&s.try, &s.cmd))
}

// many runs requests of several callers in a pipeline. Only the timeout ends it.
func (c *adapter) many(requests []*redisroom.Request) {
	try := c.begin(context.Background())
	defer try.End()
	pipe := c.single.Pipeline()
	cmds := make([]*command, len(requests))
	for i, j := range requests {
		cmds[i] = newCommand(try, j.Words)
		_ = pipe.Process(try, cmds[i])
	}
	_, err := pipe.Exec(try) // each written command has its own error
	for i, j := range requests {
		j.Reply, j.Err = c.result(try, cmds[i], err)
	}
}

// begin returns the context of a call, which ends with ctx, and after the timeout at the
// latest.
func (c *adapter) begin(ctx context.Context) *interrupt.Call { return c.conns.Begin(ctx, c.timeout) }

func (c *adapter) Run(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	try := c.begin(ctx)
	defer try.End()
	sent := make([]*command, len(cmds))
	pipe := c.single.Pipeline()
	for i, words := range cmds {
		sent[i] = newCommand(try, words)
		_ = pipe.Process(try, sent[i])
	}
	wait := addWait(try, pipe, want)
	_, err := pipe.Exec(try) // each written command has its own error
	for i, cmd := range sent {
		reply, failed := c.result(try, cmd, err)
		each(i, c.answer(try, reply, failed, wait))
	}
}

// addWait adds WAIT to the end of a pipeline: it counts for the connection that wrote. It
// returns nil if no acks are wanted.
func addWait(ctx *interrupt.Call, pipe redis.Pipeliner, want redisroom.Acks) *command {
	if want.Replicas == 0 {
		return nil
	}
	deadline, _ := ctx.Deadline()
	wait := newCommand(ctx, want.Wait(deadline))
	_ = pipe.Process(ctx, wait)
	return wait
}

// answer joins the outcome of a command with that of its WAIT, if any.
func (c *adapter) answer(try *interrupt.Call, reply any, err error, wait *command) redisroom.Answer {
	a := redisroom.Answer{Reply: reply, Err: err}
	if wait != nil {
		var n any
		n, a.AckErr = c.result(try, wait, err)
		acked, _ := n.(int64)
		a.Acked = int(acked)
	}
	return a
}

func (c *adapter) Nodes(context.Context) ([]string, error) {
	if addr := c.single.Options().Addr; addr != behindSentinels {
		return []string{addr}, nil
	}
	return []string{redisroom.Primary}, nil
}

func (c *adapter) Sentinels() (addrs []string, primary string) {
	return c.sentinels.addrs, c.sentinels.primary
}

func (c *adapter) Ask(ctx context.Context, name string, words ...string) (any, error) {
	if slices.Contains(c.sentinels.addrs, name) {
		opt := c.sentinels.options
		opt.Addr = name
		sentinel := newSingle(opt, c.timeout)
		defer sentinel.Close()
		return sentinel.Ask(ctx, "", words...)
	}
	return c.one(ctx, words)
}

func (c *adapter) Visit(ctx context.Context, addr string, words ...string) (any, error) {
	opt := c.base
	if addr != "" {
		opt.Addr = addr
	}
	if c.direct != nil {
		opt.Dialer = c.direct
	}
	if opt.Addr == behindSentinels || c.base.Addr == behindSentinels && c.direct == nil {
		return nil, fmt.Errorf("it is not known how %q is connected to: %w", opt.Addr, errors.ErrUnsupported)
	}
	visitor := newSingle(opt, c.timeout)
	defer visitor.Close()
	return visitor.Ask(ctx, "", words...)
}

func (c *adapter) Close() error {
	c.batch.Stop() // go-redis logs a line on standard error if a call returns to a closed pool
	err := c.single.Close()
	if c.closeToo != nil {
		err = oneline.Join(err, c.closeToo())
	}
	c.batch.Wait()
	return err
}
