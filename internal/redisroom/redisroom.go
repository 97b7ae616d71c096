// Package redisroom is the store on Redis and Valkey: the scripts, which implement the
// admission rule of package internal/room over Redis data structures, and the Go code
// that calls them through one of two client libraries. It needs Redis 7.0 or Valkey 7.2.
package redisroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Defaults of a store's options.
const (
	DefaultPrefix  = "leasehold:"
	DefaultTimeout = 2 * time.Second
)

// Options are the options of a store, which its drivers and URLs have in common.
type Options struct {
	// Prefix precedes every key.
	Prefix string
	// Timeout bounds a request, and how long it is repeated while a cluster moves its slot.
	Timeout time.Duration
	// Acks are asked for on every grant and renewal, unless it is nil.
	Acks *Acks
}

// Defaults returns the options of a store without any.
func Defaults() Options { return Options{Prefix: DefaultPrefix, Timeout: DefaultTimeout} }

// Check returns an error for options out of bounds.
func (o *Options) Check() error {
	const shortest = time.Millisecond // of a wait for replicas
	err := cmp.Or(check.Text("prefix", o.Prefix, 0, 256), check.Range("timeout", o.Timeout, 10*time.Millisecond, time.Minute))
	if acks := o.Acks; err == nil && acks != nil {
		err = check.Range("number of replicas", acks.Replicas, 1, 100)
		// The other half of the timeout is left for reaching the server and for the script.
		if most := o.Timeout / 2; err == nil && (acks.Timeout < shortest || acks.Timeout > most) {
			err = check.Errorf("replica timeout %v is not between %v and half of the timeout, %v", acks.Timeout, shortest, most)
		}
	}
	return err
}

// Store keeps locks on a server, behind sentinels, or on a cluster. It is safe for
// concurrent use, and implements [driver.Driver], [driver.Watcher], [driver.Glancer],
// [driver.Breaker], [driver.Checker], [driver.Marker] and [driver.DeadlineAware].
type Store struct {
	main, renew Client
	prefix      string
	// plain is set once the server has not understood a script's header.
	plain atomic.Bool
	acks  *acks
	// timeout bounds a request that has to be repeated.
	timeout time.Duration
	reading atomic.Pointer[reading] // of a single server's clock, if there is one
	heard   atomic.Int64            // when the last answered request was sent, in ns since began
	low     lowTokens
	// counterKey is the key of the counter. bySlot is set once a cluster has refused it.
	counterKey string
	bySlot     atomic.Bool
	// renewalSlots bounds how many large renewals are under way.
	renewalSlots chan struct{}

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	listening sync.WaitGroup // subscriptions
}

var (
	_ driver.Driver        = (*Store)(nil)
	_ driver.Watcher       = (*Store)(nil)
	_ driver.Glancer       = (*Store)(nil)
	_ driver.Breaker       = (*Store)(nil)
	_ driver.Checker       = (*Store)(nil)
	_ driver.Marker        = (*Store)(nil)
	_ driver.DeadlineAware = (*Store)(nil)
)

// New returns a store with checked options. main runs everything but renewals, which run on renew,
// so that they never queue behind anything else. The store closes both.
func New(main, renew Client, o Options) *Store {
	s := &Store{
		main: main, renew: renew, prefix: o.Prefix, counterKey: o.Prefix + counterKey, timeout: o.Timeout,
		acks: newAcks(o.Acks), renewalSlots: make(chan struct{}, maxRenewals),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Acquire implements [driver.Driver].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := checkRequest(&req); err != nil {
		return driver.Reply{}, err
	}
	sent, changes := clock.Now(), s.main.Changes()
	least := s.least(sent, changes)
	reply, err := s.acquire(ctx, &req, least, plainly)
	if err == nil {
		s.heard.Store(int64(sent.Sub(began)))
	}
	if us := reply.Clock.Microseconds(); err == nil && least == anyToken && us > 0 {
		s.reading.Store(&reading{at: sent, us: us, changes: changes})
	}
	if reply.Uncontended {
		reply.Clock = 0 // an uncontended lease has no reading
	}
	if least < anyToken && s.main.Changes() != changes && mayBeLow(&reply, err) {
		s.low.add(req.ID)
	}
	return s.raised(ctx, &req, reply, err)
}

// mayBeLow reports whether an acquire has brought, or may have brought, a token from a
// counter that has fallen back, because it may have gone to another server.
func mayBeLow(reply *driver.Reply, err error) bool {
	if err != nil {
		return !errors.Is(err, driver.ErrUnavailable)
	}
	return reply.Uncontended
}

// raised returns the reply to an acquire with a token greater than any token given for the
// key, even if the counter had fallen back. No caller has seen the token that it replaces.
// It needs a second call; even if that fails, the first call may have taken the lock.
func (s *Store) raised(ctx context.Context, req *driver.Request, reply driver.Reply, err error) (driver.Reply, error) {
	if err != nil || req.Downgrade || !s.low.has(req.ID) {
		return reply, err
	}
	if reply.State == driver.Granted {
		again := reply.Replayed
		reply, err = s.acquire(ctx, req, anyToken, raising)
		if err != nil {
			return driver.Reply{}, fmt.Errorf("raise the token: %w", timing.Uncertain(err))
		}
		reply.Replayed = again
	}
	s.low.remove(req.ID)
	return reply, nil
}

func (s *Store) acquire(ctx context.Context, req *driver.Request, least int64, how string) (reply driver.Reply, err error) {
	if s.acks.wanted() {
		reply, err = s.acquireAcked(ctx, req, least, how)
	} else {
		reply, _, err = s.request(ctx, req, least, how)
	}
	if err == nil && (reply.State == driver.Granted || reply.State == driver.Queued) {
		// When the first renewal is due the server may be too full or too busy for another connection.
		s.renew.Connect(s.slot(req.Key))
	}
	return reply, err
}

// request sends a request for a lease, and returns the answer, too, which has the acks that are wanted.
func (s *Store) request(ctx context.Context, req *driver.Request, least int64, how string) (driver.Reply, Answer, error) {
	sc := acquireScript
	if req.SingleUseID {
		sc = onceScript
	}
	cmd := s.acquireCommand(s.form(sc), req, least, how)
	answer := s.runAcked(ctx, sc, cmd, s.acks.want)
	cmd.free()
	if answer.Err != nil {
		return driver.Reply{}, answer, s.guardError(req, answer.Err)
	}
	reply, err := parseAcquire(answer.Reply)
	return reply, answer, err
}

// Release implements [driver.Driver].
func (s *Store) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if err := checkRef(&ref); err != nil {
		return driver.Reply{}, err
	}
	s.low.remove(ref.ID)
	if ref.Uncontended {
		switch done, err := s.releaseUncontended(ctx, &ref); {
		case err != nil:
			return driver.Reply{}, err
		case done:
			return driver.Reply{State: driver.Released}, nil
		}
	}
	cmd := s.releaseCommand(s.form(releaseScript), &ref)
	answer := s.attempt(ctx, releaseScript, cmd, Acks{})
	if isMigrating(answer.Err) {
		return s.releaseMigrating(ctx, &ref, cmd)
	}
	cmd.free()
	if answer.Err != nil {
		return driver.Reply{}, classify(answer.Err)
	}
	return parseRelease(answer.Reply)
}

// Break implements [driver.Breaker].
func (s *Store) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	if err := checkRef(&driver.Ref{Key: key, ID: id}); err != nil {
		return driver.Reply{}, err
	}
	cmd := s.roomCommand(s.form(breakScript), key, id, reason, broadcastChannel(s.prefix), brokenHint(s.prefix, key, id, reason))
	reply, err := s.run(ctx, breakScript, cmd)
	cmd.free()
	if err != nil {
		return driver.Reply{}, err
	}
	return parseReply(reply)
}

// Close ends the subscriptions and closes the store's connections.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.cancel()
	s.listening.Wait()
	return oneline.Join(s.main.Close(), s.renew.Close())
}

// CallTimeout implements [driver.DeadlineAware]: the clients set the deadline of a call
// on its connection, which is never later than the timeout.
func (s *Store) CallTimeout() time.Duration { return s.timeout }

// form returns the form of a script that the server understands.
func (s *Store) form(sc *script) *form {
	if s.plain.Load() {
		return sc.plain()
	}
	return sc.main()
}

// run runs a script's command, and repeats it while a slot moves.
func (s *Store) run(ctx context.Context, sc *script, cmd *command) (reply any, err error) {
	answer := s.runAcked(ctx, sc, cmd, Acks{})
	return answer.Reply, answer.Err
}

// runAcked is run with the acknowledgements that are wanted.
func (s *Store) runAcked(ctx context.Context, sc *script, cmd *command, want Acks) (answer Answer) {
	if answer = s.attempt(ctx, sc, cmd, want); isMigrating(answer.Err) {
		answer.Err = s.retryWhileMoving(ctx, answer.Err, func() error {
			answer = s.attempt(ctx, sc, cmd, want)
			return answer.Err
		})
	}
	answer.Err = classify(answer.Err)
	return answer
}

// attempt runs a script's command, and again with the script's text if the server has
// forgotten the script.
func (s *Store) attempt(ctx context.Context, sc *script, cmd *command, want Acks) Answer {
	if ctx.Err() != nil {
		return Answer{Err: notSent(ctx)}
	}
	answer := s.send(ctx, cmd, want)
	for answer.Err != nil && s.repeat(sc, cmd.words, answer.Err) {
		answer = s.send(ctx, cmd, want)
	}
	s.forgetClock(answer.Err)
	return answer
}

func (s *Store) send(ctx context.Context, cmd *command, want Acks) Answer {
	if want.Replicas > 0 {
		var acked Answer
		cmd.kept = true // a pipeline may outlive the call
		s.main.Run(ctx, [][]string{cmd.words}, want, func(_ int, a Answer) { acked = a })
		return acked
	}
	reply, err := s.main.Do(ctx, cmd.words)
	// After an error the words are not used for another command, even if they are sent again and
	// answered: the abandoned call may have left them to a pipeline that is written later.
	cmd.kept = cmd.kept || err != nil
	return Answer{Reply: reply, Err: err}
}

// repeat reports whether cmd had no effect because the server does not know the script or
// its header, had to remove expired records first, or is a cluster. It changes cmd into one that may
// succeed.
func (s *Store) repeat(sc *script, cmd []string, err error) bool {
	var reply ReplyError
	switch {
	case !errors.As(err, &reply):
		return false
	case isUnfinished(reply):
		return true
	case strings.HasPrefix(string(reply), "CROSSSLOT"):
		return s.countBySlot(cmd)
	case isMigrating(err) && (sc == renewScript || sc == releaseScript || sc == breakScript):
		return s.leaveCounter(cmd)
	case isNoScript(reply) && cmd[0] == evalsha:
		cmd[0], cmd[1] = eval, sc.text(cmd[1])
		return true
	case isUncompiled(reply) && cmd[0] == eval && cmd[1] != sc.plain().text:
		s.plain.Store(true)
		cmd[1] = sc.plain().text
		return true
	}
	return false
}
