package leasehold

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/line"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/session"
)

// hold is one lease in the store and those who work under it: re-entry under the
// lease's context makes several Leases of one hold.
type hold struct {
	session.Hold
	c           *Client
	cfg         *config
	observation *observation // nil without observers
	turn        *line.Turn   // nil unless the lease is passed on inside the process
	limit       int32        // that it was asked for with; 0 if it is no place

	mu      sync.Mutex
	leaving bool // a Detach is under way: nobody may join
	cut     bool // it has reached its maximum
	told    bool // that nobody can reach it
	leases  []*share
	one     [1]*share // backs leases while there is one
	first   share
	taken   *callers // where it was taken, if anybody is to be told
}

// hold takes charge of a grant, which is one of a turn unless t is nil.
func (c *Client) hold(cfg *config, req *driver.Request, g session.Grant, obs *observation, t *line.Turn) (*hold, error) {
	h := &hold{c: c, cfg: cfg, observation: obs, turn: t, limit: int32(req.Limit)}
	h.leases = h.one[:0]
	h.taken = cfg.takenAt()
	if err := c.session.Hold(&h.Hold, req, g, h); err != nil {
		return nil, err
	}
	return h, nil
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
	done := err == nil && reply.State == driver.Granted
	h.c.counts.renewal(done)
	h.observation.renewed(h, sent, reply, err)
	if done {
		h.watch()
	}
}

// Ended implements [session.Events]. It tells first those who work under the lease,
// and then those who watch, who may take their time.
func (h *hold) Ended(cause error) {
	state := stateAfter(cause)
	h.c.counts.end(state)
	h.mu.Lock()
	leases := slices.Clone(h.leases)
	var detach []func() bool
	for _, l := range leases {
		l.state = state
		if l.detach != nil {
			detach = append(detach, l.detach)
		}
	}
	h.mu.Unlock()

	for _, l := range leases {
		l.cancel(cause)
	}
	for _, stop := range detach {
		stop() // a parent that lives on does not remember a lease that is over
	}
	h.observation.ended(h, cause)
	if state == Lost {
		h.turn.Lost(cause)
		// Whoever looked first is not held up, nor is the renewal of others.
		h.c.session.Background(func() {
			h.cfg.Log.Error("leasehold: lease lost", "key", h.Key(), "lease", h.ID(), "token", h.Token(), "cause", cause)
		})
	}
}

// CutOff implements [session.Events]: the contexts of all leases end with ErrMaxHold.
func (h *hold) CutOff() {
	h.mu.Lock()
	h.cut = true
	leases := slices.Clone(h.leases)
	for _, l := range leases {
		if !l.idle {
			l.state = MaxHoldReached
		}
	}
	h.mu.Unlock()
	for _, l := range leases {
		l.cancel(ErrMaxHold)
	}
}

// GiveBack implements [session.Events].
func (h *hold) GiveBack(cause error, limit time.Duration) error {
	err := h.giveBack(nil, limit)
	if err != nil {
		h.cfg.Log.Warn("leasehold: lease not given back", "key", h.Key(), "lease", h.ID(), "cause", cause, "error", err)
	}
	return err
}

// shareEnded gives the lease back if that was the last to work under it. lost is why
// the work was not protected to its end, if it was not.
func (h *hold) shareEnded(lost error, last bool) (err error) {
	if last {
		err = h.giveBack(lost, h.cfg.ReleaseTimeout)
	}
	if err = oneline.Join(lost, err); err != nil {
		return lockError(h.Key(), err)
	}
	return nil
}

// giveBack releases the lease in the store, for at most limit. lost is why the work was
// not protected to its end, if it was not.
func (h *hold) giveBack(lost error, limit time.Duration) error {
	over := lost != nil // the answer of the store then tells nothing new
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

// pass hands the lease to the next who waits for it in this process, if that may be.
func (h *hold) pass() bool {
	if h.turn == nil {
		return false
	}
	g, ok := h.Onward()
	return h.turn.Pass(g, ok)
}

func (h *hold) add(l *share) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.join(l)
}

// join is add; the caller holds mu. Ended comes later for one that it finds.
func (h *hold) join(l *share) {
	h.leases = append(h.leases, l)
	switch cause := h.Cause(); {
	case cause != nil:
		l.state, l.cause = stateAfter(cause), cause
	case h.cut:
		l.state, l.cause = MaxHoldReached, ErrMaxHold
	}
}

// pause notes that the context of l has ended.
func (h *hold) pause(l *share) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.idle = true
	h.windDown()
}

// windDown stops the renewal if the contexts of all leases have ended. The caller holds mu.
func (h *hold) windDown() {
	if !slices.ContainsFunc(h.leases, func(l *share) bool { return !l.idle }) && len(h.leases) > 0 {
		h.WindDown()
	}
}

// reenter adds a lease for a request that was made under another lease of h,
// unless that allows it no longer or not for this use. Both are one step: what
// Downgrade and Detach have looked at stays so while they ask the store.
func (h *hold) reenter(l *share, r *request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	// To read under a read lease is to re-enter; a place is no read lease.
	reads := r.mode == driver.Shared && r.limit == 0 && h.limit == 0
	switch {
	case h.Cause() != nil || h.cut:
		h.join(l) // its context tells why
	case h.leaving:
		return errLeaving
	case h.Mode() == driver.Exclusive || reads:
		h.join(l)
		h.GoOn()
	case r.mode == driver.Exclusive:
		return errUpgrade
	default:
		return errOutside
	}
	return nil
}

var (
	// errUpgrade: the write side was asked for under a read lease.
	errUpgrade = fmt.Errorf("a read lease cannot be upgraded; release it first: %w", ErrMismatch)
	// errLeaving: the lock was asked for under a lease that is about to be left to
	// somebody else.
	errLeaving = fmt.Errorf("the lease is being detached: %w", ErrMismatch)
	// errLowering: a request that is on its way may make a reader's of the lease, also
	// after somebody else has taken it over.
	errLowering = fmt.Errorf("it is not known whether it is a writer's or a reader's; repeat Downgrade: %w", ErrMismatch)
	// errOutside: the request is one like any other's.
	errOutside = errors.New("no re-entry")
)

// leave begins a Detach, of a lease that nobody else has, and returns its TTL.
func (h *hold) leave() (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n := len(h.leases); {
	case n > 1:
		return 0, fmt.Errorf("held %d times: %w", n, ErrMismatch)
	case h.leaving:
		return 0, errLeaving
	case h.Lowering():
		return 0, errLowering
	}
	h.leaving = true
	return h.TTL(), nil
}

// stay ends a Detach; a lease that was left has ended.
func (h *hold) stay() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = false
}

// follow notes how l is detached from the context that it follows. That context
// may have ended already.
func (h *hold) follow(l *share, detach func() bool) {
	h.mu.Lock()
	l.detach = detach
	ended := h.Cause() != nil
	h.mu.Unlock()
	if ended {
		detach()
	}
}

// unfollow detaches l without the lock: its parent may be a context of this hold.
func (h *hold) unfollow(l *share) {
	h.mu.Lock()
	detach := l.detach
	l.detach = nil
	h.mu.Unlock()
	if detach != nil {
		detach()
	}
}

// remove takes a lease off. It returns why the work was unprotected at its end,
// if it was, and whether the caller has to give the hold back: the last does,
// unless that has been done.
func (h *hold) remove(l *share, cause error) (lost error, back bool) {
	h.Live()
	h.mu.Lock()
	if i := slices.Index(h.leases, l); i >= 0 {
		h.leases = slices.Delete(h.leases, i, i+1)
	}
	back, ended, lost := h.Leave(len(h.leases) == 0, cause) // nobody re-enters in between
	h.windDown()
	if l.state == Held {
		l.state = stateAfter(cmp.Or(lost, cause))
	}
	h.mu.Unlock()
	if ended {
		h.Left(cause)
	}
	return lost, back
}
