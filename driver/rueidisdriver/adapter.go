package rueidisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// lanes is how many requests leave at once before requests share a pipeline. rueidis joins
// simultaneous requests, but writes separately for each caller once there are many: a
// crowd is served faster if it gathers. With 4, 256 goroutines reached 71 to 77 % of the pairs of
// a bare client, with 16 they reached 64 to 65 %; 16 goroutines 58 to 66 and 59 to 62 %.
const lanes = 4

// adapter implements [redisroom.Client] over rueidis, for one server.
type adapter struct {
	asked   rueidis.ClientOption // as the application gave it
	option  rueidis.ClientOption
	timeout time.Duration

	mu         sync.Mutex
	client     rueidis.Client  // nil until connected
	connecting *connectAttempt // nil if no call is connecting
	closed     bool
	attempts   redisroom.Pace
	left       redisroom.Pace // clients of a replica
	work       sync.WaitGroup // goroutines that the seam started
	batch      redisroom.Batcher

	named     atomic.Value // the address of the primary that the sentinels have named last
	listening listenerCounts
	conns     interrupt.Conns
}

var _ redisroom.Client = (*adapter)(nil)

func newAdapter(asked rueidis.ClientOption, timeout time.Duration) *adapter {
	opt := asked
	opt.DisableRetry, opt.DisableCache = true, true
	opt.SendToReplicas, opt.ReadNodeSelector = nil, nil
	opt.ReplicaSelector = nil //nolint:staticcheck // deprecated, but the caller may have set it
	opt.DisableAutoPipelining = false
	// Otherwise rueidis would subscribe again at the end of a connection's
	// life, without reporting that messages may have been lost.
	opt.ConnLifetime = 0
	opt.Dialer.Timeout = timeout / 2
	// A connection without an answer for that time is given up, so
	// that the next call has a fresh one.
	opt.ConnWriteTimeout = timeout
	opt.Sentinel.Dialer.Timeout = timeout / 2
	if opt.Sentinel.Dialer.Control == nil {
		opt.Sentinel.Dialer.Control = ofSentinel
	}
	if opt.Sentinel.MasterSet != "" && opt.Sentinel.TopologyRefreshInterval == 0 {
		opt.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	s := &adapter{asked: asked, timeout: timeout}
	s.conns.Verb = "EVAL"
	opt.DialCtxFn, opt.DialFn = s.dialer(opt), nil
	s.option = opt
	s.batch.Lanes, s.batch.One, s.batch.Many = lanes, s.one, s.many
	return s
}

func (s *adapter) Changes() uint64 { return s.conns.Made() }

func (s *adapter) Cut() { s.conns.Cut() }

func (s *adapter) Cluster() bool { return false }

// begin returns the context of a call. rueidis waits in the socket while one caller has a
// connection to itself, and watches the context when several share it.
func (s *adapter) begin(ctx context.Context) *interrupt.Call {
	return s.conns.BeginTimed(ctx, s.timeout)
}

func (s *adapter) Do(ctx context.Context, words []string) (any, error) { return s.batch.Do(ctx, words) }

// many runs requests of several callers in a pipeline. Only the timeout ends it.
func (s *adapter) many(requests []*redisroom.Request) {
	try := s.begin(context.Background())
	defer try.End()
	client, err := s.connectedClient(try)
	if err != nil {
		for _, r := range requests {
			r.Err = err
		}
		return
	}
	s.pipeline(try, client, requests, command)
	if redisroom.IsUnsent(requests[0].Err) && !try.Over() { // as in one
		try.Again()
		s.pipeline(try, client, requests, first)
	}
}

// pipeline sends requests by one connection, which the first of them chooses.
func (s *adapter) pipeline(try *interrupt.Call, client rueidis.Client, requests []*redisroom.Request, build func(rueidis.Client, []string) rueidis.Completed) {
	cmds := make([]rueidis.Completed, len(requests))
	for i, r := range requests {
		cmds[i] = build(client, r.Words)
	}
	for i, answer := range client.DoMulti(try, cmds...) {
		requests[i].Reply, requests[i].Err = s.result(try, answer)
	}
}

// one runs a single request.
func (s *adapter) one(ctx context.Context, words []string) (any, error) {
	try := s.begin(ctx)
	defer try.End()
	client, err := s.connectedClient(try)
	if err != nil {
		return nil, err
	}
	reply, err := s.result(try, client.Do(try, command(client, words)))
	if redisroom.IsUnsent(err) && !try.Over() { // connecting takes time, even if the caller has left
		try.Again()
		return s.result(try, client.Do(try, first(client, words)))
	}
	return reply, err
}

// first makes a command for the first connection to a server, which is made with the
// client. The other connections are chosen at random and made on first use; a server that
// is full refuses them.
func first(client rueidis.Client, words []string) rueidis.Completed {
	return client.B().Arbitrary(words...).Build()
}

// command converts the words of an EVALSHA.
func command(client rueidis.Client, words []string) rueidis.Completed {
	const first = redisroom.FirstKey
	args := first
	if n, err := strconv.Atoi(words[first-1]); err == nil {
		args += n
	}
	return client.B().Arbitrary(words[:first]...).Keys(words[first:args]...).Args(words[args:]...).Build()
}

// result returns the outcome of a command as [redisroom.Client] defines it.
func (s *adapter) result(try *interrupt.Call, r rueidis.RedisResult) (any, error) {
	message, err := r.ToMessage()
	if err != nil {
		err = s.failed(try, err)
		s.leaveReplica(err)
		return nil, err
	}
	return value(message), nil
}

// leaveReplica makes the next request connect again if the server has become a replica: its
// name may now lead to the new primary, and rueidis would keep the connection. It does so at
// most once a second, as long as the name leads there. Requests under way are answered. With
// sentinels, rueidis learns of a failover from them.
func (s *adapter) leaveReplica(err error) {
	var reply redisroom.ReplyError
	if s.option.Sentinel.MasterSet != "" || !errors.As(err, &reply) || !strings.HasPrefix(string(reply), "READONLY") || !s.left.Due() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.client; old != nil && !s.closed {
		s.client = nil
		s.work.Go(old.Close)
	}
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

// failure returns an error of rueidis as [redisroom.Client] defines it.
func (s *adapter) failure(ctx context.Context, err error) error {
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
			return redisroom.ErrClosed
		}
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, rueidis.ErrNoAddr):
		return s.connectError(err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// errGivenUp is the error of a request whose connection was closed because another request
// on it was not answered in time, or was given up by its caller.
var errGivenUp = errors.New("the connection was closed with another request on it")

// failed is failure for a request that may have shared its connection.
func (s *adapter) failed(try *interrupt.Call, err error) error {
	if _, reply := rueidis.IsRedisErr(err); err != nil && !reply && try.Unsent() {
		return redisroom.ConnectError(s.failure(try, err))
	}
	err = s.failure(try, err)
	if timing.IsTimeout(err) && !timing.Definite(err) && !try.Over() {
		return errGivenUp
	}
	return err
}

func (s *adapter) Run(ctx context.Context, cmds [][]string, want redisroom.Acks, each func(int, redisroom.Answer)) {
	client, err := s.connectSoon(ctx)
	if err != nil {
		for i := range cmds {
			each(i, redisroom.Answer{Err: err})
		}
		return
	}
	try := s.begin(ctx)
	defer try.End()
	sent := make([]rueidis.Completed, len(cmds), len(cmds)+1)
	for i, cmd := range cmds {
		sent[i] = first(client, cmd)
	}
	if want.Replicas > 0 {
		sent = append(sent, wait(try, client, want))
	}
	results := client.DoMulti(try, sent...)
	for i := range cmds {
		each(i, s.answer(try, results[i], results[len(cmds):]))
	}
}

// wait returns a WAIT that ends with the call at the latest. Since it blocks, rueidis gives
// its pipeline a connection of its own; WAIT counts for the connection that wrote.
func wait(try *interrupt.Call, client rueidis.Client, want redisroom.Acks) rueidis.Completed {
	deadline, _ := try.Deadline()
	return client.B().Arbitrary(want.Wait(deadline)...).Blocking()
}

// answer joins the outcome of a command with that of the WAIT after it, if any.
func (s *adapter) answer(try *interrupt.Call, r rueidis.RedisResult, wait []rueidis.RedisResult) (a redisroom.Answer) {
	a.Reply, a.Err = s.result(try, r)
	if len(wait) > 0 {
		n, err := wait[0].AsInt64()
		a.Acked, a.AckErr = int(n), s.failed(try, err)
	}
	return a
}

func (s *adapter) Nodes(context.Context) ([]string, error) {
	if s.option.Sentinel.MasterSet != "" {
		return []string{redisroom.Primary}, nil
	}
	return []string{s.option.InitAddress[0]}, nil
}

func (s *adapter) Sentinels() (addrs []string, primary string) {
	if primary = s.option.Sentinel.MasterSet; primary != "" {
		addrs = s.option.InitAddress
	}
	return addrs, primary
}

func (s *adapter) Ask(ctx context.Context, node string, words ...string) (any, error) {
	client, err := s.connectSoon(ctx)
	if err != nil {
		return nil, err
	}
	if addrs, _ := s.Sentinels(); slices.Contains(addrs, node) {
		if client, err = s.sentinel(node); err != nil {
			return nil, s.connectError(err)
		}
		defer client.Close()
	}
	try := s.begin(ctx)
	defer try.End()
	return s.result(try, client.Do(try, client.B().Arbitrary(words...).Build()))
}

func (s *adapter) Visit(ctx context.Context, addr string, words ...string) (any, error) {
	opt := s.asked
	if addr == "" && opt.Sentinel.MasterSet != "" {
		return nil, fmt.Errorf("which server the sentinels name is not known: %w", errors.ErrUnsupported)
	}
	if addr != "" {
		opt.InitAddress = []string{addr}
	}
	opt.ForceSingleClient, opt.Sentinel = true, rueidis.SentinelOption{}
	visitor := newAdapter(opt, s.timeout)
	defer visitor.Close()
	return visitor.Ask(ctx, "", words...)
}

// sentinel connects to a sentinel.
func (s *adapter) sentinel(addr string) (rueidis.Client, error) {
	opt := s.option
	opt.InitAddress, opt.ForceSingleClient, opt.SelectDB = []string{addr}, true, 0
	opt.Username, opt.Password = opt.Sentinel.Username, opt.Sentinel.Password
	opt.TLSConfig, opt.Dialer, opt.Sentinel = opt.Sentinel.TLSConfig, opt.Sentinel.Dialer, rueidis.SentinelOption{}
	return rueidis.NewClient(opt)
}

func (s *adapter) Close() error {
	s.mu.Lock()
	s.closed = true
	client := s.client
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
	s.batch.Wait()
	s.work.Wait()
	return nil
}
