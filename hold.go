package leasehold

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/keeper"
	"github.com/leasehold-go/leasehold/internal/ticket"
)

// hold is one lease in the store, as this process knows it. Re-entry under the
// lease's context makes several Leases of one hold.
//
// Two things act on its clock: the keeper decides when to renew, through Ask
// and Answer; live decides when it is over, by comparing the clock.
type hold struct {
	c       *Client
	cfg     *config
	key, id string
	limit   int // that it was asked for with; 0 if it is no place
	token   int64
	granted clock.Instant
	// unanswered is set when a request of this id got no answer and may still
	// be on its way.
	unanswered bool
	task       keeper.Task
	trail      *trail // nil without observers

	// Guarded by the mutex of the client's deadlines.
	rings clock.Instant // at the deadline, or at an earlier one that has moved since
	place int           // in the heap, from 1; 0 is absent

	mu       sync.Mutex
	mode     driver.Mode
	given    bool // back, by whoever was first to do it
	alone    bool // nobody else was there when the store answered last
	ttl      time.Duration
	asked    time.Duration // the TTL of the renewal under way
	deadline clock.Instant
	ended    error       // why it is over
	cutoff   *time.Timer // WithMaxHold
	leases   []*Lease
	one      [1]*Lease // backs leases while there is one
	asking   *asking   // nil while all is well
}

// asking is what a lease needs only while its renewals fail, or are asked for.
type asking struct {
	failed   error // of the last renewal, until one succeeds
	attempts int   // failed in a row
	extends  []chan error
	flying   []chan error // of extends that the renewal under way answers
}

// need returns what a lease needs only now and then. The caller holds mu.
func (h *hold) need() *asking {
	if h.asking == nil {
		h.asking = new(asking)
	}
	return h.asking
}

// grant is what the store gave.
type grant struct {
	token      int64
	deadline   time.Time
	confirmed  bool // the store counts the full TTL already
	alone      bool // nobody else was there
	unanswered bool
	handed     time.Time // when the store handed it over, at the earliest; zero if it did not
}

// deadline is when a lease is over that was asked for at sent. It is counted
// from before the request left: the store's clock may have started at any
// moment since. Stores count whole milliseconds, hence the 2 ms.
func (c *config) deadline(sent time.Time, ttl time.Duration) time.Time { return sent.Add(c.life(ttl)) }

// life is how long a lease lasts on the local clock.
func (c *config) life(ttl time.Duration) time.Duration {
	return ttl - time.Duration(float64(ttl)*c.drift) - 2*time.Millisecond
}

func newHold(c *Client, cfg *config, req *driver.Request, g grant, t *trail) *hold {
	h := &hold{
		c: c, cfg: cfg, key: req.Key, id: req.ID, mode: req.Mode, limit: req.Limit, token: g.token, granted: c.instant(c.now()),
		unanswered: g.unanswered, alone: g.alone, ttl: cfg.ttl, deadline: c.instant(g.deadline), trail: t,
	}
	h.task = keeper.Task{Sink: h, Slack: min(cfg.ttl/30, time.Second)}
	h.leases = h.one[:0]
	return h
}

// How a lease is lost, where it is not by force.
var (
	errExpired = fmt.Errorf("%w: not renewed before its deadline", ErrLost)
	errGone    = fmt.Errorf("%w: the store no longer has it", ErrLost)
)

// confirmPart is the part of the time for a confirmation that is spent waiting
// whether it is needed: 20 ms of a second.
const confirmPart = 50

// start sets the clocks going. A grant that the store handed over is confirmed
// by its first renewal, which leaves soon; what is released before that need not
// be confirmed at all.
func (h *hold) start(g grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return
	}
	h.c.deadlines.set(h, h.deadline)
	if h.cfg.maxHold > 0 {
		h.cutoff = time.AfterFunc(h.cfg.maxHold, h.cutOff)
	}
	switch {
	case !g.confirmed:
		h.c.keeper.Add(&h.task, g.handed.Add(ticket.Window(h.ttl)/confirmPart))
	case !h.cfg.noRenewal:
		h.c.keeper.Add(&h.task, h.c.time(h.granted).Add(h.period()))
	}
}

// period is the time between renewals.
func (h *hold) period() time.Duration {
	return time.Duration(float64(h.ttl) * h.cfg.renewFraction)
}

// live reports whether the lease is valid, and ends it if its time is up.
func (h *hold) live() bool {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return false
	}
	if h.c.instant(h.c.now()) < h.deadline {
		h.mu.Unlock()
		return true
	}
	cause := errExpired
	if h.asking != nil && h.asking.failed != nil {
		cause = fmt.Errorf("%w: %w", cause, h.asking.failed)
	}
	h.end(cause)
	return false
}

// over returns why the lease is not valid, nil while it is.
func (h *hold) over() error {
	if h.live() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// end makes the lease over. The caller holds mu, which end releases.
func (h *hold) end(cause error) {
	h.ended = cause
	h.c.deadlines.clear(h)
	if h.cutoff != nil {
		h.cutoff.Stop()
	}
	leases := slices.Clone(h.leases)
	var detach []func() bool
	for _, l := range leases {
		if l.detach != nil {
			detach = append(detach, l.detach)
		}
	}
	var waiting []chan error
	if a := h.asking; a != nil {
		waiting = append(a.extends, a.flying...)
		a.extends, a.flying = nil, nil
	}
	h.mu.Unlock()

	h.c.forget(h, cause)
	for _, l := range leases {
		l.cancel(cause)
	}
	for _, stop := range detach {
		stop() // a parent that lives on does not remember a lease that is over
	}
	for _, done := range waiting {
		done <- fmt.Errorf("%w: %w", ErrNotHeld, cause)
	}
}

// snooze reports whether the lease's time is up, and otherwise has it ring at
// its deadline, which has moved.
func (h *hold) snooze(now clock.Instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return false
	}
	if h.deadline > now {
		h.c.deadlines.set(h, h.deadline)
		return false
	}
	return true
}

// cutOff ends the lease at WithMaxHold.
func (h *hold) cutOff() { h.stop(ErrMaxHold) }

// stop ends a live lease and gives it back in the background.
func (h *hold) stop(cause error) {
	h.c.enter() // before it ends: Close waits for what comes after
	if !h.quit(cause) {
		h.c.leave()
		return
	}
	go func() {
		defer h.c.leave()
		h.giveUp(cause, h.cfg.releaseTimeout)
	}()
}

// quit ends a live lease that the caller then gives back with giveUp.
func (h *hold) quit(cause error) bool {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return false
	}
	h.given = true
	h.end(cause)
	return true
}

// giveUp gives back a lease that nobody waits for to be released.
func (h *hold) giveUp(cause error, limit time.Duration) {
	if err := h.giveBack(nil, limit); err != nil {
		h.cfg.log.Warn("leasehold: lease not given back", "key", h.key, "lease", h.id, "cause", cause, "error", err)
	}
}

// forced ends the lease that the store says was broken.
func (h *hold) forced(reason string) {
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return
	}
	h.end(forcedError(reason))
}

// forcedError matches ErrForced and ErrLost.
func forcedError(reason string) error {
	if reason == "" {
		return fmt.Errorf("%w: %w", ErrLost, ErrForced)
	}
	return fmt.Errorf("%w: %w: %s", ErrLost, ErrForced, reason)
}

func (h *hold) add(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leases = append(h.leases, l)
	if h.ended != nil {
		l.cancel(h.ended)
	}
}

// follow notes how l is detached from the context that it follows. That context
// may have ended already.
func (h *hold) follow(l *Lease, detach func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.detach = detach
	if h.ended != nil && l.parts == nil {
		detach()
	}
}

func (h *hold) unfollow(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.detach != nil {
		l.detach()
		l.detach = nil
	}
}

// remove takes a lease off. It returns why the work was unprotected at its end,
// if it was, and whether the caller has to give the hold back: the last does,
// unless that has been done.
func (h *hold) remove(l *Lease, cause error) (lost error, back bool) {
	h.live()
	h.mu.Lock()
	if i := slices.Index(h.leases, l); i >= 0 {
		h.leases = slices.Delete(h.leases, i, i+1)
	}
	if lost = h.ended; lost != nil && !errors.Is(lost, ErrLost) {
		lost = fmt.Errorf("%w: %w", ErrLost, lost) // at its maximum, or by Close
	}
	if back = len(h.leases) == 0 && !h.given; back {
		h.given = true
		if h.ended == nil {
			h.end(cause)
			return nil, true
		}
	}
	h.mu.Unlock()
	return lost, back
}

func (h *hold) state() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking != nil && h.asking.failed != nil {
		return Unconfirmed
	}
	return Held
}

func (h *hold) side() driver.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

func (h *hold) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c.time(h.deadline)
}

// extend asks for a renewal now and returns where its outcome is told.
func (h *hold) extend(ttl time.Duration) (<-chan error, error) {
	if !h.live() {
		return nil, h.notHeld()
	}
	done := make(chan error, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHeld, h.ended)
	}
	h.ttl = max(h.ttl, ttl)
	a := h.need()
	a.extends = append(a.extends, done)
	h.c.keeper.Add(&h.task, h.c.now())
	return done, nil
}

func (h *hold) notHeld() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Errorf("%w: %w", ErrNotHeld, h.ended)
}

// Ask implements [keeper.Sink]. A try gets half of what is left, so that
// another one fits in before the deadline.
func (h *hold) Ask(now time.Time) (driver.Ref, time.Duration, bool) {
	h.live() // after a suspension the timer of the deadline is late
	h.mu.Lock()
	defer h.mu.Unlock()
	left := time.Duration(h.deadline - h.c.instant(now))
	if h.ended != nil || left <= 0 {
		return driver.Ref{}, 0, false
	}
	h.asked = h.ttl
	if a := h.asking; a != nil {
		a.flying = append(a.flying, a.extends...)
		a.extends = nil
	}
	return driver.Ref{Key: h.key, ID: h.id, TTL: h.ttl, Alone: h.alone}, max(left/2, time.Millisecond), true
}

// Answer implements [keeper.Sink].
func (h *hold) Answer(sent time.Time, reply driver.Reply, err error) time.Time {
	h.c.counts.renewal(err)
	if !h.live() {
		return time.Time{} // a late answer changes nothing
	}
	h.trail.renewed(h, sent, &reply, err)
	h.mu.Lock()
	switch {
	case h.ended != nil:
		h.mu.Unlock()
		return time.Time{}
	case err == nil && reply.State == driver.Granted:
		defer h.mu.Unlock()
		h.alone = reply.Alone
		return h.renewed(sent)
	case err == nil && reply.Broken:
		h.end(forcedError(reply.Reason))
		return time.Time{}
	case err == nil:
		h.end(errGone)
		return time.Time{}
	}
	a := h.need()
	a.failed = err
	a.attempts++
	if ticket.Final(err) || h.cfg.maxAttempts > 0 && a.attempts >= h.cfg.maxAttempts {
		h.end(fmt.Errorf("%w: %d renewals failed: %w", ErrLost, a.attempts, err))
		return time.Time{}
	}
	defer h.mu.Unlock()
	a.extends, a.flying = append(a.flying, a.extends...), nil
	now := h.c.now()
	pause := min(h.ttl/12, time.Duration(h.deadline-h.c.instant(now))/4)
	return now.Add(max(pause, time.Millisecond))
}

// renewed moves the deadline; it never moves back. The caller holds mu.
func (h *hold) renewed(sent time.Time) time.Time {
	h.deadline = max(h.deadline, h.c.instant(h.cfg.deadline(sent, h.asked)))
	if a := h.asking; a != nil {
		a.failed, a.attempts = nil, 0
		for _, done := range a.flying {
			done <- nil
		}
		if a.flying = nil; len(a.extends) > 0 {
			return h.c.now()
		}
		h.asking = nil
	}
	if h.cfg.noRenewal {
		return time.Time{}
	}
	return sent.Add(h.period())
}

// giveBack releases the lease in the store, for at most limit, and judges the
// answer. lost is the loss that came before, if any.
func (h *hold) giveBack(lost error, limit time.Duration) error {
	ref := driver.Ref{Key: h.key, ID: h.id, Alone: h.alone}
	if lost == nil && h.cfg.minHold > 0 {
		ref.Keep = max(h.cfg.minHold-h.held(), 0)
	}
	if h.unanswered {
		ref.Forbid = forbid(h.cfg.ttl)
	}
	begun := h.trail.now(h.c)
	reply, repeated, err := h.c.release(h.trail.detached(), ref, limit)
	switch {
	case err != nil:
		err = fmt.Errorf("release: %w", unknown(err))
	case lost != nil:
		// What it says of a lease that was over is no news.
	case reply.Broken:
		err = forcedError(reply.Reason)
	case reply.State == driver.Gone && !repeated:
		// Gone after a try that was not answered: that try released it.
		err = fmt.Errorf("%w: the store no longer had it at its release", ErrLost)
	}
	h.trail.released(h, begun, err)
	if lost != nil {
		err = lost
	}
	if err != nil {
		return lockError(h.key, err)
	}
	return nil
}

// held is for how long the lease has been there.
func (h *hold) held() time.Duration { return h.c.now().Sub(h.c.time(h.granted)) }

// forbid is how long a store refuses the id of a request that may still be on
// its way.
func forbid(ttl time.Duration) time.Duration { return max(ttl, time.Minute) }
