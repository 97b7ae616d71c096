package redisroom

import (
	"context"
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

// DefaultReplicaTimeout returns the default limit of the wait for replicas.
func DefaultReplicaTimeout(timeout time.Duration) time.Duration { return min(time.Second, timeout/2) }

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
	// pending holds the leases with requests under way.
	pending map[leaseOf]*pending
	// lateUndos holds grants that an undo under way may still end, and until when.
	lateUndos map[visitOf]time.Time
}

type leaseOf struct{ key, id string }

// visitOf names a grant that was reported to a visit. An undo ends only its own visit's
// grant.
type visitOf struct {
	leaseOf
	visit string
}

// pending describes the requests for one lease that are under way in this process. A grant
// that the replicas did not acknowledge is undone by the last of them, and only if none has
// reported the lease to its caller.
type pending struct {
	requests int
	reported bool
	debt     *unackedGrant
	undone   bool // the undo is under way, and further requests are refused
}

// unackedGrant is a grant that the replicas did not acknowledge.
type unackedGrant struct {
	visitOf
	ttl      time.Duration
	cause    error
	hopeless bool // the server will never acknowledge
}

// begin counts a request for a lease. It reports false if the lease is being undone.
func (a *acks) begin(l leaseOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[l]
	if p == nil {
		p = new(pending)
		a.pending[l] = p
	}
	if p.undone {
		return false
	}
	p.requests++
	return true
}

// end ends a request that begin has counted. reported is true if its caller gets the lease,
// and d is its grant if that was not acknowledged. end returns a grant that the caller has to
// undo, or nil.
func (a *acks) end(l leaseOf, reported bool, d *unackedGrant) *unackedGrant {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[l]
	p.requests--
	p.reported = p.reported || reported
	if d != nil {
		p.debt = d
	}
	switch {
	case p.requests > 0:
		return nil
	case p.debt == nil || p.reported:
		delete(a.pending, l)
		return nil
	}
	p.undone = true
	return p.debt
}

// settled ends an undo.
func (a *acks) settled(l leaseOf) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, l)
}

func newAcks(want *Acks) *acks {
	if want == nil {
		return &acks{}
	}
	return &acks{want: *want, good: make([]atomic.Bool, Slots), pending: make(map[leaseOf]*pending), lateUndos: make(map[visitOf]time.Time)}
}

func (a *acks) wanted() bool { return a.want.Replicas > 0 }

// confirm notes whether the replicas of a slot acknowledged, and returns the error if
// they did not.
func (a *acks) confirm(slot int, answer Answer) error {
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

// slot returns the slot of a lock on a cluster, or 0.
func (s *Store) slot(key string) int {
	if !s.main.Cluster() {
		return 0
	}
	return Slot(s.prefix + key)
}

// acquireAcked is Acquire with replicas. A grant that they do not acknowledge is undone before
// the error is returned, or by the last request for the lease that is under way.
func (s *Store) acquireAcked(ctx context.Context, req *driver.Request, least int64, how string) (driver.Reply, error) {
	slot := s.slot(req.Key)
	if ctx.Err() != nil {
		return driver.Reply{}, notSent(ctx)
	}
	if err := s.checkReplicas(ctx, slot, req.Key); err != nil {
		return driver.Reply{}, err
	}
	l := leaseOf{req.Key, req.ID}
	if !s.acks.begin(l) {
		return driver.Reply{}, fmt.Errorf("%w: an earlier grant of the lease is being undone", driver.ErrUnavailable)
	}
	reply, unacked, err := s.askAcked(ctx, req, slot, least, how)
	undo := s.acks.end(l, err == nil && reply.State == driver.Granted, unacked)
	var undone error
	if undo != nil {
		undone = s.undo(ctx, undo)
	}
	switch {
	case unacked == nil:
		return reply, err
	case undo == nil:
		return driver.Reply{}, fmt.Errorf("%w; another request asked for the lease, too", timing.Uncertain(unacked.cause))
	}
	return driver.Reply{}, undone
}

// askAcked sends a request for a lease. It returns a grant that was not acknowledged as a debt.
func (s *Store) askAcked(ctx context.Context, req *driver.Request, slot int, least int64, how string) (driver.Reply, *unackedGrant, error) {
	of := visitOf{leaseOf{req.Key, req.ID}, req.Visit}
	if s.acks.mayBeUndone(of) {
		return driver.Reply{State: driver.Gone}, nil, nil
	}
	reply, answer, err := s.request(ctx, req, least, how)
	if err != nil || reply.State != driver.Granted {
		return reply, nil, err
	}
	switch err := s.acks.confirm(slot, answer); {
	case err == nil:
		return reply, nil, nil
	case reply.Replayed: // an earlier request may have reported the lease
		return driver.Reply{}, nil, timing.Uncertain(err)
	default:
		return driver.Reply{}, &unackedGrant{of, req.TTL, err, withoutWait(answer.AckErr)}, nil
	}
}

// watchRenewals counts the renewals of the refs with these indices. It refuses renewals of
// leases that are being undone, or that a late undo may still end. The caller renews the rest
// with the returned function, and then calls settle.
func (s *Store) watchRenewals(refs []driver.Ref, which []int, each func(int, driver.Reply, error)) (rest []int, watched func(int, driver.Reply, error), settle func(context.Context)) {
	for _, i := range which {
		l := leaseOf{refs[i].Key, refs[i].ID}
		switch {
		case s.acks.mayBeUndone(visitOf{l, refs[i].Visit}), !s.acks.begin(l):
			each(i, driver.Reply{}, fmt.Errorf("%w: the grant is being undone", driver.ErrNotReplicated))
		default:
			rest = append(rest, i)
		}
	}
	var undos []*unackedGrant
	watched = func(i int, reply driver.Reply, err error) {
		l := leaseOf{refs[i].Key, refs[i].ID}
		if undo := s.acks.end(l, err == nil && reply.State == driver.Granted, nil); undo != nil {
			undos = append(undos, undo)
		}
		each(i, reply, err)
	}
	settle = func(ctx context.Context) {
		for _, undo := range undos {
			_ = s.undo(ctx, undo) // the acquire has reported an unknown outcome
		}
	}
	return rest, watched, settle
}

// leastUndo is the time that undoing a grant has, also if the time of its request is
// over.
const leastUndo = 100 * time.Millisecond

// undo releases a grant, unless another visit asked for the lease too and may have got it.
// If the outcome of the release is unknown, the grant counts as undone for a while: a late
// release would end a later grant of the same visit.
func (s *Store) undo(ctx context.Context, d *unackedGrant) error {
	defer s.acks.settled(d.leaseOf)
	undo, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.deadline(ctx, leastUndo))
	defer cancel()
	reply, err := s.Release(undo, driver.Ref{Key: d.key, ID: d.id, Visit: d.visit})
	switch {
	case err == nil && reply.State == driver.Busy:
		return fmt.Errorf("%w; another request asked for the lease, too", timing.Uncertain(d.cause))
	case err != nil:
		s.acks.noteLateUndo(d.visitOf, max(d.ttl, time.Minute))
		return fmt.Errorf("%w; undo: %w", timing.Uncertain(d.cause), timing.Uncertain(err))
	case d.hopeless:
		return fmt.Errorf("%w; ask for no replicas, or take another server or user: %w", d.cause, errors.ErrUnsupported)
	}
	return fmt.Errorf("%w: %w", d.cause, driver.ErrUnavailable)
}

// noteLateUndo records that an undo under way may still end the grant, for at most life.
func (a *acks) noteLateUndo(grant visitOf, life time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.lateUndos, func(_ visitOf, until time.Time) bool { return now.After(until) })
	a.lateUndos[grant] = now.Add(life)
}

// mayBeUndone reports whether a late undo may still end a grant.
func (a *acks) mayBeUndone(grant visitOf) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.lateUndos[grant])
}

var replicasScript = newScript("replicas")

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
	if n, _ := count(parseReplicas(parseInfo(text))); ok && n < s.acks.want.Replicas {
		return fmt.Errorf("%w: %d of %d replicas are connected: %w", driver.ErrNotReplicated, n, s.acks.want.Replicas, driver.ErrUnavailable)
	}
	return nil
}
