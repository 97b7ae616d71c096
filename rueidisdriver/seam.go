package rueidisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// seam is the seam of internal/redisroom on rueidis.
type seam struct {
	option  rueidis.ClientOption
	timeout time.Duration

	mu         sync.Mutex
	client     rueidis.Client // nil until connected
	connecting *connecting    // nil if nobody is
	closed     bool
	work       sync.WaitGroup // goroutines that the seam started

	conns    interrupt.Conns
	topology topology
	hops     atomic.Uint64 // redirections followed
}

var _ redisroom.Client = (*seam)(nil)

func newSeam(opt rueidis.ClientOption, timeout time.Duration) *seam {
	opt.DisableRetry, opt.DisableCache = true, true
	opt.SendToReplicas, opt.ReadNodeSelector = nil, nil
	opt.ReplicaSelector = nil //nolint:staticcheck // deprecated, but the caller may have set it
	opt.DisableAutoPipelining = false
	opt.Dialer.Timeout = timeout / 2
	// A connection on which nothing comes back for so long is given up, so
	// that the next call has a fresh one.
	opt.ConnWriteTimeout = timeout
	opt.Sentinel.Dialer.Timeout = timeout / 2
	if opt.Sentinel.MasterSet != "" && opt.Sentinel.TopologyRefreshInterval == 0 {
		opt.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	s := &seam{timeout: timeout}
	opt.DialCtxFn, opt.DialFn = s.dialer(opt), nil
	s.option = opt
	return s
}

// Changes implements [redisroom.Client].
func (s *seam) Changes() uint64 { return s.conns.Made() + s.hops.Load() }

// Cluster implements [redisroom.Client]. It is careful before the first
// connection, when nobody knows.
func (s *seam) Cluster() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client == nil || s.client.Mode() == rueidis.ClientModeCluster
}

// begin returns the context for a call. rueidis waits in the socket while one
// caller has a connection to itself, and looks at the context when several
// share it.
func (s *seam) begin(ctx context.Context) *interrupt.Call { return s.conns.BeginTimed(ctx, s.timeout) }

// Do implements [redisroom.Client].
func (s *seam) Do(ctx context.Context, words []string) (any, error) {
	try := s.begin(ctx)
	defer try.End()
	client, err := s.connected(try)
	if err != nil {
		return nil, err
	}
	return s.result(ctx, client.Do(try, command(client, words)))
}

// command converts the words of an EVALSHA.
func command(client rueidis.Client, words []string) rueidis.Completed {
	args := firstKey
	if n, err := strconv.Atoi(words[firstKey-1]); err == nil {
		args += n
	}
	return client.B().Arbitrary(words[:firstKey]...).Keys(words[firstKey:args]...).Args(words[args:]...).Build()
}

// result gives the outcome of a command the form that the seam asks for.
func (s *seam) result(ctx context.Context, r rueidis.RedisResult) (any, error) {
	message, err := r.ToMessage()
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return value(message), nil
}

// value converts a reply.
func value(m rueidis.RedisMessage) any {
	switch {
	case m.IsNil():
		return nil
	case m.IsInt64():
		n, _ := m.AsInt64()
		return n
	case m.IsMap():
		var pairs []any
		items, _ := m.ToMap()
		for name, item := range items {
			pairs = append(pairs, name, value(item))
		}
		return pairs
	case m.IsArray():
		items, _ := m.ToArray()
		list := make([]any, len(items))
		for i, item := range items {
			list[i] = value(item)
		}
		return list
	}
	text, err := m.ToString()
	if err != nil {
		return redisroom.ReplyError(err.Error())
	}
	return text
}

// failure gives an error of rueidis the form that the seam asks for.
func (s *seam) failure(ctx context.Context, err error) error {
	var op *net.OpError
	switch reply, ok := rueidis.IsRedisErr(err); {
	case err == nil, rueidis.IsRedisNil(err):
		return nil
	case ok:
		return redisroom.ReplyError(reply.Error())
	case errors.Is(err, rueidis.ErrClosing):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return closedError()
		}
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, rueidis.ErrNoAddr):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// Run implements [redisroom.Client].
func (s *seam) Run(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	client, err := s.soonConnected(ctx)
	switch {
	case err != nil:
		for i := range cmds {
			each(i, redisroom.Answer{Err: err})
		}
	case client.Mode() == rueidis.ClientModeCluster:
		s.runCluster(ctx, client, cmds, want, each)
	default:
		all := make([]int, len(cmds))
		for i := range all {
			all[i] = i
		}
		s.pipeline(ctx, client, cmds, all, want, each)
	}
}

// pipeline runs those of the commands that which names together.
func (s *seam) pipeline(ctx context.Context, client rueidis.Client, cmds [][]string, which []int, want redisroom.Acks, each func(int, redisroom.Answer)) {
	try := s.begin(ctx)
	defer try.End()
	completed := make([]rueidis.Completed, len(which), len(which)+1)
	for k, i := range which {
		completed[k] = command(client, cmds[i])
	}
	if want.Replicas > 0 {
		completed = append(completed, wait(try, client, want))
	}
	results := client.DoMulti(try, completed...)
	for k, i := range which {
		each(i, s.answer(ctx, results[k], results[len(which):]))
	}
}

// wait is a WAIT that ends with the call at the latest. Since it blocks,
// rueidis gives the pipeline that it stands in a connection of its own: it
// counts for the connection that wrote.
func wait(try *interrupt.Call, client rueidis.Client, want redisroom.Acks) rueidis.Completed {
	deadline, _ := try.Deadline()
	return client.B().Arbitrary(want.Wait(deadline)...).Blocking()
}

// answer joins the outcome of a command with that of the WAIT after it, if any.
func (s *seam) answer(ctx context.Context, r rueidis.RedisResult, wait []rueidis.RedisResult) (a redisroom.Answer) {
	a.Reply, a.Err = s.result(ctx, r)
	if len(wait) > 0 {
		n, err := wait[0].AsInt64()
		a.Acked, a.AckErr = int(n), s.failure(ctx, err)
	}
	return a
}

// Nodes implements [redisroom.Client].
func (s *seam) Nodes(ctx context.Context) ([]string, error) {
	client, err := s.soonConnected(ctx)
	if err != nil {
		return nil, err
	}
	switch client.Mode() {
	case rueidis.ClientModeSentinel:
		return []string{redisroom.Primary}, nil
	case rueidis.ClientModeStandalone:
		return []string{s.option.InitAddress[0]}, nil
	}
	try := s.begin(ctx)
	defer try.End()
	slots, err := s.look(try, client)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	var nodes []string
	for _, r := range slots {
		nodes = append(nodes, r.primary)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// Sentinels implements [redisroom.Client].
func (s *seam) Sentinels() (addrs []string, primary string) {
	if primary = s.option.Sentinel.MasterSet; primary != "" {
		addrs = s.option.InitAddress
	}
	return addrs, primary
}

// Ask implements [redisroom.Client].
func (s *seam) Ask(ctx context.Context, node string, words ...string) (any, error) {
	client, err := s.soonConnected(ctx)
	if err != nil {
		return nil, err
	}
	if addrs, _ := s.Sentinels(); slices.Contains(addrs, node) {
		if client, err = s.sentinel(node); err != nil {
			return nil, connectError(err)
		}
		defer client.Close()
	} else if client.Mode() == rueidis.ClientModeCluster {
		if client, err = s.node(ctx, client, node, ""); err != nil {
			return nil, err
		}
	}
	try := s.begin(ctx)
	defer try.End()
	return s.result(ctx, client.Do(try, client.B().Arbitrary(words...).Build()))
}

// sentinel connects to a sentinel, for its own sake.
func (s *seam) sentinel(addr string) (rueidis.Client, error) {
	opt := s.option
	opt.InitAddress, opt.ForceSingleClient, opt.SelectDB = []string{addr}, true, 0
	opt.Username, opt.Password = opt.Sentinel.Username, opt.Sentinel.Password
	opt.TLSConfig, opt.Sentinel = opt.Sentinel.TLSConfig, rueidis.SentinelOption{}
	return rueidis.NewClient(opt)
}

// Scan implements [redisroom.Client].
func (s *seam) Scan(ctx context.Context, node string, cursor uint64, match string, count int) ([]string, uint64, error) {
	client, err := s.soonConnected(ctx)
	if err != nil {
		return nil, 0, err
	}
	if client.Mode() == rueidis.ClientModeCluster {
		one, ok := client.Nodes()[node]
		if !ok {
			return nil, 0, fmt.Errorf("%w: node %s is not known", driver.ErrUnavailable, node)
		}
		client = one
	}
	try := s.begin(ctx)
	defer try.End()
	entry, err := client.Do(try, client.B().Scan().Cursor(cursor).Match(match).Count(int64(count)).Build()).AsScanEntry()
	return entry.Elements, entry.Cursor, s.failure(ctx, err)
}

// Close implements [redisroom.Client].
func (s *seam) Close() error {
	s.mu.Lock()
	s.closed = true
	client := s.client
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
	s.work.Wait()
	return nil
}
