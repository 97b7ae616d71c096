package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/caller"
	"github.com/leasehold-go/leasehold/internal/line"
	"github.com/leasehold-go/leasehold/internal/session"
)

// hold is one lease in the store with the Leases that share it: re-entry under the lease's
// context adds a Lease to its hold.
type hold struct {
	session.Hold
	c           *Client
	cfg         *config
	observation *observation // nil without observers
	turn        *line.Turn   // nil unless the lease is passed on inside the process
	limit       int32        // of a semaphore; otherwise 0

	mu        sync.Mutex
	leaving   bool // a Detach is under way, and re-entry is refused
	cut       bool // the lease has reached WithMaxHold
	forgotten bool // a dropped Lease was logged
	entries   []*entry
	one       [1]*entry // backs entries while there is one
	first     entry
	taken     *caller.Stack // the call stack of the acquisition; nil if a dropped Lease is not logged
}

// lease makes a hold of a grant and returns its first Lease, whose context derives from ctx. t is
// the turn of the line, nil without one.
func (c *Client) lease(ctx context.Context, cfg *config, req *driver.Request, g session.Grant, obs *observation, t *line.Turn) (*Lease, error) {
	h := &hold{c: c, cfg: cfg, observation: obs, turn: t, limit: int32(req.Limit)}
	h.entries = h.one[:0]
	h.taken = cfg.takenAt()
	if err := c.session.Hold(&h.Hold, req, g, h); err != nil {
		return nil, err
	}
	l := newLease(obs.context(ctx), h, &h.first)
	h.mu.Lock()
	h.join(l.entry)
	h.mu.Unlock()
	return l, nil
}

// Terms implements [session.Events].
func (h *hold) Terms() *session.Terms { return &h.cfg.Terms }

// Began implements [session.Events].
func (h *hold) Began(handed time.Time) {
	h.observation.acquired(h, handed)
	h.c.counts.granted.Add(1)
}

// Renewed implements [session.Events].
func (h *hold) Renewed(sent time.Time, reply *driver.Reply, err error) {
	if err == nil && reply.State == driver.Granted {
		h.c.counts.renewed.Add(1)
		h.watch()
		if reply.Wanted || h.turn.Waiting() {
			h.Want()
		}
	} else {
		h.c.counts.failed.Add(1)
	}
	h.observation.renewed(h, sent, reply, err)
}

// Ended implements [session.Events]. It ends the contexts first and calls observers then,
// since observers may be slow.
func (h *hold) Ended(cause error) {
	state := stateAfter(cause)
	if state == Lost { // other leases are counted by gaveBack
		h.c.counts.lost.Add(1)
	}
	h.mu.Lock()
	entries := slices.Clone(h.entries)
	for _, e := range entries {
		e.state = state
	}
	h.mu.Unlock()

	for _, e := range entries {
		e.cancel(cause)
	}
	if state == Lost {
		defer h.turn.Lost(cause) // also if an observer panics
	}
	h.observation.ended(h, cause)
	if state == Lost {
		// In the background, so that a slow logger delays neither this caller nor renewals.
		h.c.session.Background(func() {
			h.cfg.Log.Error("leasehold: lease lost", "key", h.Key(), "lease", h.ID(), "token", h.Token(), "cause", cause)
		})
	}
}

// CutOff implements [session.Events]: the contexts of all leases end with ErrMaxHold.
func (h *hold) CutOff() {
	h.mu.Lock()
	h.cut = true
	entries := slices.Clone(h.entries)
	h.mu.Unlock()
	for _, e := range entries {
		e.cancel((*maximum)(h))
	}
}

// maximum is the ErrMaxHold of a lease. It differs from that of an outer lock.
type maximum hold

func (*maximum) Error() string { return ErrMaxHold.Error() }
func (*maximum) Unwrap() error { return ErrMaxHold }

// GiveBack implements [session.Events].
func (h *hold) GiveBack(cause error, limit time.Duration) error {
	err := h.giveBack(nil, limit)
	if err != nil {
		h.cfg.Log.Warn("leasehold: lease not given back", "key", h.Key(), "lease", h.ID(), "cause", cause, "error", err)
	}
	return err
}

// giveBack releases the lease in the store, for at most limit. lost is the cause if the work was
// not protected to its end.
func (h *hold) giveBack(lost error, limit time.Duration) error {
	over := lost != nil // the store's answer is then ignored
	begun := h.observation.now(h.c)
	var err error
	if over || !h.pass() {
		err = h.Release(h.observation.detached(), over, limit)
		h.turn.Left()
	}
	h.observation.released(h, begun, err)
	if over {
		return nil
	}
	h.c.counts.gaveBack(err)
	return err
}

// pass passes the lease to the next call that waits in this process, and reports whether it
// did.
func (h *hold) pass() bool {
	if h.turn == nil {
		return false
	}
	g, ok := h.Onward()
	return h.turn.Pass(g, ok)
}

// join adds an entry. An entry of a lease that has ended starts with its cause. The caller holds
// mu.
func (h *hold) join(e *entry) {
	h.entries = append(h.entries, e)
	switch cause := h.Cause(); {
	case cause != nil:
		e.state, e.cause = stateAfter(cause), cause
	case h.cut:
		e.state, e.cause = MaxHoldReached, (*maximum)(h)
	}
}

// Due implements [session.Events]. The look at the contexts and WindDown are one step, so that no
// re-entry comes in between.
func (h *hold) Due() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.entries) > 0 && !slices.ContainsFunc(h.entries, (*entry).working) {
		h.WindDown()
	}
}

// reenter adds an entry for a request that was made under another entry of h. It fails if the
// lease has ended, is being detached, or does not allow this mode. The check and the change are
// one step under mu, so that Downgrade and Detach can rely on the entries that they saw.
func (h *hold) reenter(e *entry, r *request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	// To read under a read lease is to re-enter; a place is no read lease.
	reads := r.mode == driver.Shared && r.limit == 0 && h.limit == 0
	switch {
	case h.Cause() != nil || h.cut:
		h.join(e) // its context ends with the cause
	case h.leaving:
		return errLeaving
	case h.Mode() == driver.Exclusive || reads:
		h.join(e)
		h.GoOn()
	case r.mode == driver.Exclusive:
		return errUpgrade
	default:
		return errNoReentry
	}
	return nil
}

var (
	// errUpgrade: the write side was asked for under a read lease.
	errUpgrade = fmt.Errorf("a read lease cannot be upgraded; release it first: %w", ErrMismatch)
	// errLeaving: the lock was asked for under a lease that is being detached.
	errLeaving = fmt.Errorf("the lease is being detached: %w", ErrMismatch)
	// errLowering: an unanswered request may still turn the lease into a reader's, also after
	// another process has adopted it.
	errLowering = fmt.Errorf("it is not known whether it is a writer's or a reader's; repeat Downgrade: %w", ErrMismatch)
	// errNoReentry: the request has to ask the store like any other.
	errNoReentry = errors.New("no re-entry")
)

// alone returns an error if the lease is shared by re-entry or is being detached. The caller
// holds mu.
func (h *hold) alone() error {
	switch n := len(h.entries); {
	case n > 1:
		return fmt.Errorf("held %d times: %w", n, ErrMismatch)
	case h.leaving:
		return errLeaving
	}
	return nil
}

// lower begins a downgrade. From now on re-entry to write is refused.
func (h *hold) lower() error {
	h.Live() // after a suspension the timer of the deadline is late
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := cmp.Or(h.CanLower(), h.alone()); err != nil {
		return err
	}
	h.Lower()
	return nil
}

// leave begins a Detach, and returns the TTL of the lease.
func (h *hold) leave() (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.alone(); err != nil {
		return 0, err
	}
	if h.Lowering() {
		return 0, errLowering
	}
	h.leaving = true
	return h.TTL(), nil
}

// stay ends a Detach, also one that failed.
func (h *hold) stay() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = false
}

// remove removes an entry. It returns whether the caller has to give the lease back: with the
// last entry, unless that was done; whether it has to call Left; and the cause if the work was
// not protected to its end.
func (h *hold) remove(e *entry, cause error) (back, ended bool, lost error) {
	h.Live()
	h.mu.Lock()
	if i := slices.Index(h.entries, e); i >= 0 {
		h.entries = slices.Delete(h.entries, i, i+1)
	}
	back, ended, lost = h.Leave(len(h.entries) == 0, cause) // under mu, so that no re-entry comes in between
	if e.state == Held {
		e.state = stateAfter(cmp.Or(lost, cause))
	}
	h.mu.Unlock()
	return back, ended, lost
}
