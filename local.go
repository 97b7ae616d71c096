package leasehold

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// MaxLocalHandover is the greatest number of [WithLocalHandover].
const MaxLocalHandover = 10_000

// WithLocalHandover hands a lock on inside the process. Calls of Lock for one key by
// one client then stand in a line of the process, in the order in which they came, and
// one of them stands in the store's queue for all. A release passes the lease to the
// next in the line without asking the store: every grant is a lease of its own, with a
// token of its own, greater than every token given before.
//
// While others wait in the store, or if the store does not tell that nobody does, the
// lease is passed on n times at most; then it is released, and the line asks for it
// again, behind those who wait. So processes take turns of up to n + 1 grants, and the
// order of arrival is kept in each process only. While nobody else waits, on Redis, the
// lease stays for as long as somebody stands in the line.
//
// It concerns mutexes, and the write side of read-write locks, whose options are alike.
// It has no effect for
//
//   - locks with [WithReentrantOwner], [WithStrictOrder], [WithRetry], [WithMinHold],
//     [WithoutRenewal], [WritersFirst] or [ReadersFirst],
//   - elections,
//   - waits that [ObserveWait] shows,
//   - stores that keep no queue, such as a quorum, or mint no tokens.
//
// A lease that the store has not confirmed for a second is confirmed before it is passed on;
// if the store does not answer within another second, it is passed on all the same. So after
// a store lost its data, two processes may hold the lock for up to that time, and the tokens
// of this process may be smaller than those of the other one.
//
// A TryLock is refused while calls of its client wait in the line. A lease that was extended
// beyond its TTL is released and not passed on. [Mutex.Adopt] of a detached lease may
// return a greater token, since tokens are reserved ahead.
//
// The leases of one turn share their [Lease.ID], and the token that inspection shows is
// one that the turn has reached or may reach. [Client.Break] of the id ends the lease that
// is held now, and the rest of the line returns to the store. The line also returns to the
// store after a lease that was pinned by a transaction (see package postgresdriver).
//
// Default: 0, every Lock stands in the store's queue itself. 1 to 10 000. With 100 to
// 1000 the store is asked seldom, and the turn of others comes soon if work is short: a
// process keeps the lock for up to n + 1 times as long as one holder does.
func WithLocalHandover(n int) Option {
	return func(c *config) error {
		if n < 1 || n > MaxLocalHandover {
			return fmt.Errorf("local hand-over %d is not between 1 and %d: %w", n, MaxLocalHandover, ErrInvalid)
		}
		c.passes = n
		return nil
	}
}

// lines are the calls of a client that wait for locks which are handed on inside the
// process.
type lines struct {
	none atomic.Bool // the store mints no tokens, or keeps no queue

	mu  sync.Mutex // guards every line, with its standers and its turn
	all map[alike]*line
}

// alike is what those have in common who stand in one line: one may take over the
// lease that the store gave to another.
type alike struct {
	key                                    string
	policy                                 Policy
	ttl, lockDelay, releaseTimeout, outage time.Duration
	fraction, drift                        float64
	attempts, passes                       int
	name, labels                           string
	minToken                               int64
}

// line is one of those. Somebody asks the store for it, or there is a turn, or it is
// empty and forgotten.
type line struct {
	c      *Client
	alike  alike
	wait   list.List // of *stander
	asking *asking
	turn   *turn
	last   int // number given to a call
	ranks  ranks
}

// asking is the request that stands in the store for a line.
type asking struct {
	cancel   context.CancelFunc
	waiter   *session.Waiter // once the store has answered that it has to wait
	position int             // in that answer
	owner    string          // of the lease that it waits for
}

// stander is one call that stands in a line.
type stander struct {
	r     *request
	ctx   context.Context // for what is asked of the store
	began time.Time
	woken chan struct{} // holds one token

	line  *line
	place *list.Element // nil once it has left
	told  bool          // that it has to wait, at this position behind owner
	// What the wait came to: a grant of turn, or err.
	position int
	owner    string
	number   int // of the call in its line; those with smaller numbers stand before it
	turn     *turn
	grant    session.Grant
	err      error
}

// lined reports whether a Lock under ctx stands in a line of the process.
func (r *request) lined(ctx context.Context) bool {
	c := r.cfg
	return c.passes > 0 && r.mode == driver.Exclusive && (r.policy == FIFO || r.policy == Barging) &&
		c.reentrantOwner == "" && !c.strictOrder && c.retry == nil && c.MinHold == 0 && !c.NoRenewal &&
		!r.c.lines.none.Load() && ctx.Value(observerKey{}) == nil
}

func (r *request) alike() alike {
	c := r.cfg
	return alike{
		key: r.key, policy: r.policy, ttl: c.TTL, lockDelay: c.lockDelay, releaseTimeout: c.ReleaseTimeout,
		outage: c.MaxOutage, fraction: c.RenewFraction, drift: c.Drift, attempts: c.MaxAttempts, passes: c.passes,
		name: c.name, labels: c.labelText, minToken: c.minToken,
	}
}

// heldHere refuses a TryLock if this process holds the lock and may pass it on, or if calls
// wait for the lock in this process.
func (r *request) heldHere() error {
	if !r.lined(context.Background()) {
		return nil
	}
	h, waiting := r.c.lines.holder(r.alike())
	switch {
	case h != nil && h.Live():
		return &HeldError{Key: r.key, Owner: r.cfg.owner(), Remaining: max(h.Deadline().Sub(r.c.now()), 0)}
	case waiting:
		return &HeldError{Key: r.key, Owner: r.cfg.owner()}
	}
	return nil
}

// holder returns the holder of the lease that a line passes on, or nil, and whether calls
// wait in the line.
func (l *lines) holder(a alike) (h *hold, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.all[a]
	if line == nil {
		return nil, false
	}
	if line.turn != nil {
		h = line.turn.hold
	}
	return h, line.wait.Len() > 0
}

// length is how many calls stand in lines for a key.
func (l *lines) length(key string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a, line := range l.all {
		if a.key == key {
			n += line.wait.Len()
		}
	}
	return n
}

// stand waits in a line of the process until bound ends; ctx is the parent of the
// lease.
func (r *request) stand(ctx, bound context.Context, obs *observation) (*Lease, error) {
	if err := r.c.session.Begin(); err != nil {
		return nil, lockError(r.key, err)
	}
	defer r.c.session.Leave()
	s := &stander{r: r, ctx: obs.context(ctx), began: r.c.now(), woken: make(chan struct{}, 1)}
	r.c.lines.join(s)
	ended := false
	defer func() {
		if !ended { // an observer panicked
			_ = s.leave(ErrReleased)
		}
	}()
	l, err := r.await(ctx, bound, s, obs)
	ended = true
	return l, err
}

// await waits until s has the lock, or its wait ends.
func (r *request) await(ctx, bound context.Context, s *stander, obs *observation) (*Lease, error) {
	waits := false
	defer func() {
		if waits {
			r.c.counts.waiting.Add(-1)
		}
	}()
	for {
		switch t, told, err := s.look(); {
		case err != nil:
			return nil, r.path(err)
		case t != nil:
			return r.take(ctx, bound, s, obs)
		case told && !waits:
			waits = true
			r.c.counts.waiting.Add(1)
			obs.waiting(s.position, s.owner)
		}
		select {
		case <-s.woken:
		case <-bound.Done():
			return nil, s.leave(session.CauseOf(bound))
		case <-r.c.session.Closing():
			return nil, s.leave(ErrClosed)
		}
	}
}

// look is what has become of the wait. The position and the owner are set if it is told
// to wait.
func (s *stander) look() (t *turn, told bool, err error) {
	l := &s.r.c.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	if t = s.turn; t != nil && t.over { // lost on the way
		s.turn = nil
		l.stand(s, (*list.List).PushFront)
	}
	return s.turn, s.told, s.err
}

// take makes a lease of what s was granted.
func (r *request) take(ctx, bound context.Context, s *stander, obs *observation) (*Lease, error) {
	if cause := session.CauseOf(bound); cause != nil {
		return nil, s.leave(cause)
	}
	t := s.turn
	h, err := r.c.hold(r.cfg, &t.req, s.grant, obs, t)
	if err != nil {
		t.refuse(s.grant)
		return nil, lockError(r.key, err)
	}
	t.begun(h)
	return newLease(obs.context(ctx), h), nil
}

func (l *lines) join(s *stander) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stand(s, (*list.List).PushBack)
}

// stand puts s into its line. The caller holds mu, as of all that follows unless it
// says otherwise.
func (l *lines) stand(s *stander, put func(*list.List, any) *list.Element) {
	a := s.r.alike()
	here := l.all[a]
	if here == nil {
		here = &line{c: s.r.c, alike: a}
		if l.all == nil {
			l.all = make(map[alike]*line)
		}
		l.all[a] = here
	}
	s.line, s.place = here, put(&here.wait, s)
	if s.number == 0 { // else it stands where it stood before
		here.last++
		s.number = here.last
	}
	here.ranks.join(&here.wait, s.number)
	switch {
	case here.turn != nil:
		s.tell(here.wait.Len(), a.name)
		here.turn.refill()
	case here.asking == nil:
		here.next()
	case here.asking.waiter != nil:
		s.tell(here.asking.position+here.wait.Len()-1, here.asking.owner)
	}
}

// tell has s know that it has to wait.
func (s *stander) tell(position int, owner string) {
	if s.told {
		return
	}
	s.told, s.position, s.owner = true, position, owner
	s.wake()
}

func (s *stander) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// leave ends the wait because of cause, and returns its error. What s may have been
// granted at the same time goes to the next. The caller does not hold mu.
func (s *stander) leave(cause error) error {
	all := &s.r.c.lines
	all.mu.Lock()
	if s.err != nil {
		defer all.mu.Unlock()
		return s.r.path(s.err)
	}
	waited := s.r.c.now().Sub(s.began)
	held := &HeldError{Key: s.r.key, Owner: s.r.cfg.owner(), Waited: waited, Cause: cause}
	if t := s.turn; t != nil {
		all.mu.Unlock()
		t.refuse(s.grant)
		return held
	}
	defer all.mu.Unlock()
	l := s.line
	place := l.ranks.rank(s.number)
	l.wait.Remove(s.place)
	l.ranks.add(s.number, -1)
	switch {
	case l.turn != nil:
		held.Position, held.Remaining = place, max(l.turn.deadline().Sub(s.r.c.now()), 0)
		return held
	case l.wait.Len() == 0:
		l.asking.cancel()
	}
	switch {
	case l.asking.waiter != nil:
	case s.told: // the store has answered since
		held.Position, held.Owner = place, s.owner
		return held
	default:
		return lockError(s.r.key, session.Because(cause, fmt.Errorf("%w: the store has not answered", ErrUnknown)))
	}
	end := l.asking.waiter.Unserved(cause)
	end.Position, end.Waited = end.Position+place-1, waited
	return s.r.path(end)
}
