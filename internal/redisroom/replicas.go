package redisroom

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Acks sets how many replicas must acknowledge a write before it counts. The zero value
// requires no replica.
type Acks struct {
	Replicas int
	// Timeout bounds the wait for them.
	Timeout time.Duration
}

// Bounds of Acks. The other half of a request's timeout is left for reaching
// the server and for the script.
const (
	MaxReplicas       = 100
	MinReplicaTimeout = time.Millisecond
)

// DefaultReplicaTimeout returns the default limit of the wait for replicas.
func DefaultReplicaTimeout(timeout time.Duration) time.Duration { return min(time.Second, timeout/2) }

// checkAcks refuses acks out of bounds, given the timeout of a request.
func checkAcks(a Acks, timeout time.Duration) error {
	switch {
	case a.Replicas < 1 || a.Replicas > MaxReplicas:
		return fmt.Errorf("%d replicas: want 1 to %d: %w", a.Replicas, MaxReplicas, driver.ErrInvalid)
	case a.Timeout < MinReplicaTimeout || a.Timeout > timeout/2:
		return fmt.Errorf("replica timeout %v: want %v to half of the timeout, %v: %w", a.Timeout, MinReplicaTimeout, timeout/2, driver.ErrInvalid)
	}
	return nil
}

// Wait returns the words of WAIT for a request that ends at deadline. WAIT ends early
// enough for its answer to arrive.
func (a Acks) Wait(deadline time.Time) []string {
	left := min(a.Timeout, time.Until(deadline)/2)
	return []string{"WAIT", strconv.Itoa(a.Replicas), strconv.FormatInt(max(left.Milliseconds(), 1), 10)}
}

// acks is a store's state of its replicas.
type acks struct {
	want Acks
	// good marks the slots, or the one server, whose replicas acknowledged the last
	// write. The replicas of the rest are checked before the next write.
	good []atomic.Bool

	mu sync.Mutex
	// asked holds the leases with acquires under way.
	asked map[leaseOf]*asked
	// spoiled holds grants that an undo under way may still end, and until when.
	spoiled map[visitOf]time.Time
}

type leaseOf struct{ key, id string }

// visitOf names a grant that was reported to a visit. An undo ends only its own visit's
// grant.
type visitOf struct {
	leaseOf
	visit string
}

func visitOfRequest(req *driver.Request) visitOf {
	return visitOf{leaseOf{req.Key, req.ID}, req.Visit}
}

// asked describes the acquires of one lease that are under way. They may share a visit, so
// an acquire undoes its grant only if no other acquire and no renewal has overlapped it,
// which may have reported the lease.
type asked struct {
	acquires   int
	overlapped bool
	undone     bool // the only acquire undoes its grant
}

// begin counts an acquire. It reports false if the lease is being undone.
func (a *acks) begin(l leaseOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.asked[l]
	switch {
	case g == nil:
		g = new(asked)
		a.asked[l] = g
	case g.undone:
		return false
	default:
		g.overlapped = true
	}
	g.acquires++
	return true
}

// end ends an acquire that begin has counted.
func (a *acks) end(l leaseOf) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g := a.asked[l]; g.acquires > 1 {
		g.acquires--
	} else {
		delete(a.asked, l)
	}
}

// mayUndo reports whether no other request can have seen the grant of the acquire under way.
// If so, other acquires of the lease are refused until this one ends.
func (a *acks) mayUndo(l leaseOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.asked[l]
	g.undone = !g.overlapped
	return g.undone
}

// mayRenew reports whether a renewal may report a lease, which is then not undone by the
// acquires under way.
func (a *acks) mayRenew(l leaseOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.asked[l]
	if g != nil && !g.undone {
		g.overlapped = true
	}
	return g == nil || !g.undone
}

func newAcks(want Acks) *acks {
	if want.Replicas == 0 {
		return &acks{}
	}
	return &acks{want: want, good: make([]atomic.Bool, slots), asked: make(map[leaseOf]*asked), spoiled: make(map[visitOf]time.Time)}
}

func (a *acks) wanted() bool { return a.want.Replicas > 0 }

// confirmRenewal is confirm for a renewal, which fails also if its lease is being undone.
func (a *acks) confirmRenewal(slot int, l leaseOf, answer Answer) error {
	err := a.confirm(slot, answer)
	if err == nil && a.wanted() && !a.mayRenew(l) {
		err = fmt.Errorf("%w: the grant is being undone", driver.ErrNotReplicated)
	}
	return err
}

// confirm notes whether the replicas of a slot acknowledged, and returns the error if
// they did not.
func (a *acks) confirm(slot int, answer Answer) error {
	if !a.wanted() {
		return nil
	}
	err := a.missing(answer)
	a.good[slot].Store(err == nil)
	return err
}

func (a *acks) missing(answer Answer) error {
	switch {
	case answer.AckErr != nil && withoutWait(answer.AckErr):
		return fmt.Errorf("%w: the server does not offer WAIT to this user (%v)", driver.ErrNotReplicated, answer.AckErr) //nolint:errorlint // as below
	case answer.AckErr != nil:
		return fmt.Errorf("%w: %v", driver.ErrNotReplicated, answer.AckErr) //nolint:errorlint // a match of AckErr would not hold for the grant
	case answer.Acked < a.want.Replicas:
		return fmt.Errorf("%w: %d of %d replicas acknowledged in time", driver.ErrNotReplicated, answer.Acked, a.want.Replicas)
	}
	return nil
}

// withoutWait reports whether this server will never answer a WAIT.
func withoutWait(err error) bool {
	var reply ReplyError
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.TrimPrefix(string(reply), "ERR ")
	return strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "NOPERM")
}

// hints passes hints on. A grant that was handed over is not acknowledged yet, so it
// becomes a hint to ask: the waiter's request is acknowledged.
func (a *acks) hints(f func(driver.Hint)) func(driver.Hint) {
	if !a.wanted() {
		return f
	}
	return func(h driver.Hint) {
		if h.Kind == driver.HintGranted {
			h = driver.Hint{Kind: driver.HintAsk, ID: h.ID}
		}
		f(h)
	}
}

// slot returns the index in acks for a lock's server.
func (s *Store) slot(key string) int {
	if !s.acks.wanted() || !s.main.Cluster() {
		return 0
	}
	return Slot(s.prefix + key)
}

// acquireAcked is Acquire with replicas. It undoes a grant that they do not acknowledge
// before it returns the error. If another request of this process for the lease overlaps, the
// grant stays until its caller releases it or its TTL ends.
func (s *Store) acquireAcked(ctx context.Context, sc *script, req *driver.Request, least int64, how string) (driver.Reply, error) {
	slot := s.slot(req.Key)
	if ctx.Err() != nil {
		return driver.Reply{}, notSent(ctx)
	}
	if err := s.checkReplicas(ctx, slot, req.Key); err != nil {
		return driver.Reply{}, err
	}
	of := visitOfRequest(req)
	if !s.acks.begin(of.leaseOf) {
		return driver.Reply{}, fmt.Errorf("%w: an earlier grant of the lease is being undone", driver.ErrUnavailable)
	}
	defer s.acks.end(of.leaseOf)
	if s.acks.isSpoiled(of) {
		return driver.Reply{State: driver.Gone}, nil
	}
	answer := s.runAcked(ctx, sc, acquireCommand(s.form(sc), s.prefix, req, least, how).take())
	if answer.Err != nil {
		return driver.Reply{}, s.guardError(req, answer.Err)
	}
	reply, err := parseAcquire(answer.Reply)
	if err != nil || reply.State != driver.Granted {
		return reply, err
	}
	if err = s.acks.confirm(slot, answer); err == nil {
		return reply, nil
	}
	switch {
	case reply.Replayed: // an earlier request may have reported the lease
		return driver.Reply{}, timing.Uncertain(err)
	case !s.acks.mayUndo(of.leaseOf):
		return driver.Reply{}, fmt.Errorf("%w; other requests asked for the lease, too", timing.Uncertain(err))
	}
	return driver.Reply{}, s.undo(ctx, req, err, withoutWait(answer.AckErr))
}

// runAcked is run with acknowledgement by replicas.
func (s *Store) runAcked(ctx context.Context, sc *script, cmd []string) (answer Answer) {
	if answer = s.attemptAcked(ctx, sc, cmd); isMigrating(answer.Err) {
		answer.Err = s.settle(ctx, answer.Err, func() error {
			answer = s.attemptAcked(ctx, sc, cmd)
			return answer.Err
		})
	}
	answer.Err = classify(answer.Err)
	return answer
}

// attemptAcked is attempt with acknowledgement by replicas.
func (s *Store) attemptAcked(ctx context.Context, sc *script, cmd []string) (answer Answer) {
	for {
		s.main.Run(ctx, [][]string{cmd}, s.acks.want, func(_ int, a Answer) { answer = a })
		if answer.Err == nil || !s.repeat(sc, cmd, answer.Err) {
			s.doubt(answer.Err)
			return answer
		}
	}
}

// leastUndo is the time that undoing a grant has, also if the time of its request is
// over.
const leastUndo = 100 * time.Millisecond

// undo releases a grant, unless another visit asked for the lease too and may have got it.
// If the outcome of the release is unknown, the grant is spoiled: a late release would end a
// later grant of the same visit.
func (s *Store) undo(ctx context.Context, req *driver.Request, cause error, hopeless bool) error {
	undo, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.end(ctx, leastUndo))
	defer cancel()
	reply, err := s.Release(undo, driver.Ref{Key: req.Key, ID: req.ID, Visit: req.Visit})
	switch {
	case err == nil && reply.State == driver.Busy:
		return fmt.Errorf("%w; another request asked for the lease, too", timing.Uncertain(cause))
	case err != nil:
		s.acks.spoil(visitOfRequest(req), max(req.TTL, time.Minute))
		return fmt.Errorf("%w; undo: %w", timing.Uncertain(cause), timing.Uncertain(err))
	case hopeless:
		return fmt.Errorf("%w; ask for no replicas, or take another server or user: %w", cause, errors.ErrUnsupported)
	}
	return fmt.Errorf("%w: %w", cause, driver.ErrUnavailable)
}

func (a *acks) spoil(grant visitOf, life time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.spoiled, func(_ visitOf, until time.Time) bool { return now.After(until) })
	a.spoiled[grant] = now.Add(life)
}

func (a *acks) isSpoiled(grant visitOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.spoiled[grant])
}

//go:embed lua/replicas.lua
var replicasLua string

var replicasScript = newScript(stage(replicasLua))

// checkReplicas fails if too few replicas are connected to the server of a slot. WAIT
// would need its whole timeout to detect that.
func (s *Store) checkReplicas(ctx context.Context, slot int, key string) error {
	if s.acks.good[slot].Load() {
		return nil
	}
	c := newCommand()
	c.holder(s.prefix, key)
	cmd := c.build(s.form(replicasScript), 1)
	reply, err := s.run(ctx, replicasScript, cmd)
	cmd.free()
	switch {
	case err != nil && errors.Is(err, driver.ErrUnavailable):
		return err
	case err != nil:
		return fmt.Errorf("%w: look for replicas: %w", driver.ErrUnavailable, err)
	}
	text, ok := reply.(string)
	if n := connectedReplicas(text); ok && n < s.acks.want.Replicas {
		return fmt.Errorf("%w: %d of %d replicas are connected: %w", driver.ErrNotReplicated, n, s.acks.want.Replicas, driver.ErrUnavailable)
	}
	return nil
}

// connectedReplicas counts the replicas that INFO shows to be online.
func connectedReplicas(info string) (n int) {
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "slave") && strings.Contains(line, "state=online") {
			n++
		}
	}
	return n
}
