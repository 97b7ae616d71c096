package leasehold

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/internal/caller"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// entry is the state of one [Lease] of a hold. The hold refers to the entry and not to the
// Lease, so that the garbage collector can report a Lease that the program has dropped; see
// forgotten.
type entry struct {
	hold   *hold
	parent context.Context
	ended  <-chan struct{} // Done of parent
	own    Lease           // used unless a dropped Lease has to be reported

	// These are guarded by hold.mu.
	inner context.Context // of the lease, without the check of the clock; made when first used
	stop  context.CancelCauseFunc
	cause error   // of the lease's end, if that was before inner was made
	lease *Lease  // until it is watched; see watch
	state State   // in which it ended; Held until then
	end   outcome // of the release
}

// context returns the context of the lease, without the check of the clock. It is made at the
// first call: many callers never use it.
func (e *entry) context() context.Context {
	for {
		e.hold.mu.Lock()
		inner, cause, parent := e.inner, e.cause, e.parent
		if cause != nil { // the lease ended first
			parent = context.WithoutCancel(parent)
		}
		e.hold.mu.Unlock()
		if inner != nil {
			return inner
		}
		inner, stop := context.WithCancelCause(parent) // without the lock: parent may be a context of this hold
		if cause != nil {
			stop(cause)
		}
		if e.keep(inner, stop, cause != nil) {
			return inner
		}
		stop(nil)
	}
}

// keep stores inner as the context, unless there is one or the lease has ended since.
func (e *entry) keep(inner context.Context, stop context.CancelCauseFunc, ended bool) bool {
	e.hold.mu.Lock()
	defer e.hold.mu.Unlock()
	if e.inner != nil || ended != (e.cause != nil) {
		return false
	}
	e.inner, e.stop = inner, stop
	return true
}

// current returns a context in the same state as that of context, without making a new one.
func (e *entry) current() context.Context {
	e.hold.mu.Lock()
	here := e.inner != nil || e.cause != nil
	e.hold.mu.Unlock()
	if here {
		return e.context()
	}
	return e.parent
}

// cancel ends the context with cause, unless it has ended. This holds also for a context that
// is made later: it ends with its parent if the parent has ended first.
func (e *entry) cancel(cause error) {
	first := true // the lease ends first
	select {
	case <-e.ended:
		first = false
	default:
	}
	e.hold.mu.Lock()
	stop := e.stop
	if stop == nil && e.cause == nil && first {
		e.cause = cause
	}
	e.hold.mu.Unlock()
	if stop != nil {
		stop(cause)
	}
}

// working reports whether the context has not ended, without a look at the clock. It calls no method
// of the parent, which may be slow, or use this lease. The caller holds hold.mu.
func (e *entry) working() bool {
	select {
	case <-e.ended:
		return false
	default:
		return e.cause == nil && (e.inner == nil || e.inner.Err() == nil)
	}
}

// endCause returns why the lease's context ended before its release, or nil.
func (e *entry) endCause() error {
	now := e.current()
	if now.Err() == nil {
		return nil
	}
	switch cause := context.Cause(now); {
	case errors.Is(cause, (*maximum)(e.hold)):
		return ErrMaxHold
	case errors.Is(cause, ErrReleased): // the outer lease was released first
		return nil
	default:
		return &contextEnded{cause}
	}
}

// live compares the clock and ends an expired lease. When live returns, the context of an
// expired lease has ended.
func (e *entry) live() {
	if cause := e.hold.Over(); cause != nil {
		e.cancel(cause)
	}
}

// endThenRelease is [Lease.Release]. It calls left when the lease's context has ended, before it
// asks the store, and not at all if another call gives the lease back.
func (e *entry) endThenRelease(left func()) error {
	h := e.hold
	return e.end.once(&h.mu, func() (err error) {
		h.c.session.Enter()
		defer h.c.session.Leave()
		cause := cmp.Or(e.endCause(), ErrReleased)
		last, ended, lost := h.remove(e, cause)
		defer func() { // also if an observer panics
			e.cancel(ErrReleased)
			left()
			if last {
				err = h.giveBack(lost, h.cfg.ReleaseTimeout)
			}
			if err = oneline.Join(lost, err); err != nil {
				err = lockError(h.Key(), err)
			}
		}()
		if ended {
			h.Left(cause)
		}
		return nil
	})
}

// outcome is the result of a function that is called once.
type outcome struct {
	ended chan struct{} // closed when the function has returned; made by the first waiter, or then
	err   error         // errUnderWay while the function runs
}

var (
	errUnderWay = errors.New("under way")
	errPanic    = errors.New("the call that released the lease panicked")
	isDone      = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

// once calls do in the first call, and returns its error from every call. mu guards the outcome.
// Later calls wait on a channel and not on a mutex as with [sync.Once], so that time passes in
// a synctest bubble.
func (o *outcome) once(mu *sync.Mutex, do func() error) error {
	mu.Lock()
	defer mu.Unlock()
	if o.ended == nil && o.err == nil {
		o.err = errUnderWay
		mu.Unlock()
		err := errPanic
		defer func() {
			mu.Lock()
			if o.ended != nil {
				close(o.ended)
			}
			o.ended, o.err = isDone, err
		}()
		err = do()
		return err
	}
	if errors.Is(o.err, errUnderWay) {
		if o.ended == nil {
			o.ended = make(chan struct{})
		}
		ended := o.ended
		mu.Unlock()
		<-ended
		mu.Lock()
	}
	return o.err
}

// A lease is renewed for as long as the process lives. A lease whose Lease and context the
// program has dropped can no longer be released, which is usually a mistake: with WithLogger it
// is logged once, with the place where it was taken.

// takenAt returns the call stack of the acquisition, nil if a dropped lease is not logged.
func (c *config) takenAt() *caller.Stack {
	if c.NoRenewal || !c.ownLog || !c.Log.Enabled(context.Background(), slog.LevelWarn) {
		return nil
	}
	return caller.Here(3)
}

// watch starts to watch for dropped Leases.
func (h *hold) watch() {
	if h.taken == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.entries {
		if e.lease != nil {
			runtime.AddCleanup(e.lease, forgotten, e)
			e.lease = nil
		}
	}
}

// forgotten is called when the garbage collector finds that the Lease of e was dropped.
func forgotten(e *entry) {
	h := e.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Cause() != nil || h.forgotten || !slices.Contains(h.entries, e) {
		return
	}
	h.forgotten = true
	go h.cfg.Log.Warn("leasehold: lease is renewed, but nothing in the program can release it any more: its Lease and its context were dropped",
		"key", h.Key(), "lease", h.ID(), "token", h.Token(), "taken", h.taken.String()) // a logger may take its time
}
