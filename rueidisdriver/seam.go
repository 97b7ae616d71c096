package rueidisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
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

	topology topology
}

// connecting is an attempt to connect that several calls wait for.
type connecting struct {
	done chan struct{} // closed when client or err is set
	// client is what came of it.
	client rueidis.Client
	err    error
}

var _ redisroom.Client = (*seam)(nil)

func newSeam(opt rueidis.ClientOption, timeout time.Duration) *seam {
	opt.DisableRetry, opt.DisableCache = true, true
	opt.SendToReplicas, opt.ReplicaSelector, opt.ReadNodeSelector = nil, nil, nil
	opt.DisableAutoPipelining = false
	opt.Dialer.Timeout = timeout / 2
	// A connection on which nothing comes back for so long is given up, so
	// that the next call has a fresh one.
	opt.ConnWriteTimeout = timeout
	opt.Sentinel.Dialer.Timeout = timeout / 2
	if opt.Sentinel.MasterSet != "" && opt.Sentinel.TopologyRefreshInterval == 0 {
		opt.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	return &seam{option: opt, timeout: timeout}
}

// connected returns the client, and connects if there is none yet. rueidis
// connects when a client is made, and has no context for it.
func (s *seam) connected(ctx context.Context) (rueidis.Client, error) {
	s.mu.Lock()
	if s.client != nil || s.closed {
		defer s.mu.Unlock()
		if s.closed {
			return nil, closedError()
		}
		return s.client, nil
	}
	c := s.connecting
	if c == nil {
		c = &connecting{done: make(chan struct{})}
		s.connecting = c
		s.work.Go(func() { s.connect(c) })
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.client, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: not connected yet: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

func (s *seam) connect(c *connecting) {
	client, err := rueidis.NewClient(s.option)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	s.connecting = nil
	switch {
	case err != nil:
		c.err = connectError(err)
	case s.closed:
		client.Close()
		c.err = closedError()
	default:
		s.client, c.client = client, client
	}
}

// connectError is the error of a request that had no connection to go by.
func connectError(err error) error {
	var reply *rueidis.RedisError
	if errors.As(err, &reply) {
		return redisroom.ReplyError(reply.Error())
	}
	return fmt.Errorf("%w: connect: %w", driver.ErrUnavailable, err)
}

func closedError() error { return fmt.Errorf("%w: %w", driver.ErrClosed, driver.ErrUnavailable) }

// Cluster implements [redisroom.Client]. It is careful before the first
// connection, when nobody knows.
func (s *seam) Cluster() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client == nil || s.client.Mode() == rueidis.ClientModeCluster
}

// try is the context of a call. Without a deadline that shows, rueidis leaves
// the waiting to a goroutine of the connection, and so returns when the
// context is cancelled.
type try struct{ context.Context }

// Deadline implements [context.Context].
func (try) Deadline() (time.Time, bool) { return time.Time{}, false }

func (s *seam) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	return try{ctx}, cancel
}

// Do implements [redisroom.Client].
func (s *seam) Do(ctx context.Context, words []string) (any, error) {
	ctx, cancel := s.begin(ctx)
	defer cancel()
	client, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	return s.result(client.Do(ctx, command(client, words)))
}

// command converts the words of an EVALSHA.
func command(client rueidis.Client, words []string) rueidis.Completed {
	const firstKey = 3
	args := firstKey
	if n, err := strconv.Atoi(words[firstKey-1]); err == nil {
		args += n
	}
	return client.B().Arbitrary(words[:firstKey]...).Keys(words[firstKey:args]...).Args(words[args:]...).Build()
}

// result gives the outcome of a command the form that the seam asks for.
func (s *seam) result(r rueidis.RedisResult) (any, error) {
	message, err := r.ToMessage()
	if err != nil {
		return nil, s.failure(err)
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
func (s *seam) failure(err error) error {
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
	}
	return err
}

// Run implements [redisroom.Client].
func (s *seam) Run(ctx context.Context, cmds [][]string, each func(int, any, error)) {
	ctx, cancel := s.begin(ctx)
	defer cancel()
	client, err := s.connected(ctx)
	if err != nil {
		for i := range cmds {
			each(i, nil, err)
		}
		return
	}
	if client.Mode() == rueidis.ClientModeCluster {
		s.runCluster(ctx, client, cmds, each)
		return
	}
	all := make([]int, len(cmds))
	for i := range all {
		all[i] = i
	}
	s.pipeline(ctx, client, cmds, all, each)
}

// pipeline runs those of the commands that which names together.
func (s *seam) pipeline(ctx context.Context, client rueidis.Client, cmds [][]string, which []int, each func(int, any, error)) {
	completed := make([]rueidis.Completed, len(which))
	for k, i := range which {
		completed[k] = command(client, cmds[i])
	}
	for k, r := range client.DoMulti(ctx, completed...) {
		reply, err := s.result(r)
		each(which[k], reply, err)
	}
}

// Listen implements [redisroom.Client]. rueidis itself finds out about a
// connection that has gone silent.
func (s *seam) Listen(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	// The confirmation comes on the goroutine that reads the connection, the
	// messages on this one.
	var mu sync.Mutex
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		mu.Lock()
		defer mu.Unlock()
		if sub.Kind == "subscribe" {
			up()
		}
	})
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, c rueidis.CommandClient) error {
		if ctx.Err() != nil { // else the connection is lost
			bounded, cancel := s.begin(context.WithoutCancel(ctx))
			defer cancel()
			c.Do(bounded, c.B().Unsubscribe().Channel(channel).Build())
		}
		return err
	})
	err = client.Receive(hooked, client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		mu.Lock()
		defer mu.Unlock()
		message(m.Message)
	})
	return s.failure(err)
}

// Nodes implements [redisroom.Client].
func (s *seam) Nodes(ctx context.Context) ([]string, error) {
	client, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	if client.Mode() != rueidis.ClientModeCluster {
		return []string{"server"}, nil
	}
	ctx, cancel := s.begin(ctx)
	defer cancel()
	slots, err := s.topology.refresh(ctx, client)
	if err != nil {
		return nil, s.failure(err)
	}
	var nodes []string
	for _, r := range slots {
		nodes = append(nodes, r.primary)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// Scan implements [redisroom.Client].
func (s *seam) Scan(ctx context.Context, node string, cursor uint64, match string, count int) ([]string, uint64, error) {
	ctx, cancel := s.begin(ctx)
	defer cancel()
	client, err := s.connected(ctx)
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
	entry, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(match).Count(int64(count)).Build()).AsScanEntry()
	return entry.Elements, entry.Cursor, s.failure(err)
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
