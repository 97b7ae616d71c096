package leasehold

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// share is a [Lease] as its hold knows it. The hold does not know the Lease itself,
// so that it is noticed when nobody else does any more: see forgotten.
type share struct {
	hold   *hold
	parent context.Context
	own    Lease // unless it is to be noticed that nobody knows the Lease any more

	// These are guarded by hold.mu.
	inner  context.Context // of the lease, but for the clock; nil until somebody asks for it
	stop   context.CancelCauseFunc
	cause  error       // why it was ended before there was one
	detach func() bool // from the parent context
	lease  *Lease      // until it is watched
	state  State       // in which it ended; Held until then
	late   bool        // the parent had ended before cause: that is what the context tells
	idle   bool        // its context ended before it was released
	end    outcome
}

// context is that of the lease, but for the clock. It is made when it is asked for the
// first time: many who lock want nothing but the lock.
func (s *share) context() context.Context {
	for {
		s.hold.mu.Lock()
		inner, cause, parent := s.inner, s.cause, s.parent
		if cause != nil && !s.late { // whatever has become of parent since
			parent = context.WithoutCancel(parent)
		}
		s.hold.mu.Unlock()
		if inner != nil {
			return inner
		}
		inner, stop := context.WithCancelCause(parent) // without the lock: parent may be a context of this hold
		if cause != nil {
			stop(cause) // before anybody sees it
		}
		if s.keep(inner, stop, cause != nil) {
			return inner
		}
		stop(nil)
	}
}

// keep has inner be the context, unless there is one, or the lease has ended since.
func (s *share) keep(inner context.Context, stop context.CancelCauseFunc, ended bool) bool {
	s.hold.mu.Lock()
	defer s.hold.mu.Unlock()
	if s.inner != nil || ended != (s.cause != nil) {
		return false
	}
	s.inner, s.stop = inner, stop
	return true
}

// present tells what context does at the moment, and is not made for that.
func (s *share) present() context.Context {
	s.hold.mu.Lock()
	here := s.inner != nil || s.cause != nil
	s.hold.mu.Unlock()
	if here {
		return s.context()
	}
	return s.parent
}

// cancel ends the context, unless it has ended. It has when cancel returns, also if it is
// made afterwards.
func (s *share) cancel(cause error) {
	late := false
	select {
	case <-s.parent.Done():
		late = true
	default:
	}
	s.hold.mu.Lock()
	stop := s.stop
	if stop == nil && s.cause == nil {
		s.cause, s.late = cause, late
	}
	s.hold.mu.Unlock()
	if stop != nil {
		stop(cause)
	}
}

// follow lets the lease wind down when parent ends.
func (s *share) follow(parent context.Context) {
	if parent.Done() != nil {
		s.hold.follow(s, context.AfterFunc(parent, func() { s.hold.pause(s) }))
	}
}

// endCause returns why the lease's context ended before its release, or nil.
func (s *share) endCause() error {
	now := s.present()
	if now.Err() == nil {
		return nil
	}
	switch cause := context.Cause(now); {
	case errors.Is(cause, ErrMaxHold):
		return ErrMaxHold
	case errors.Is(cause, ErrReleased): // the lease around it was released first
		return nil
	default:
		return &contextEnded{cause}
	}
}

// live compares the clock, and ends what has run out: when it returns the context of
// a lease that is over has ended, also if somebody else is about to end it.
func (s *share) live() {
	if cause := s.hold.Over(); cause != nil {
		s.cancel(cause)
	}
}

// giveBack ends the lease and releases it in the store; see [Lease.Release].
func (s *share) giveBack() error { return s.endThenRelease(func() {}) }

// endThenRelease is giveBack. It calls left when the lease's context has ended, before it
// asks the store, and not at all if another call gives the lease back.
func (s *share) endThenRelease(left func()) error {
	return s.end.once(&s.hold.mu, func() error {
		s.hold.c.session.Enter()
		defer s.hold.c.session.Leave()
		s.hold.unfollow(s)
		lost, last := s.hold.remove(s, cmp.Or(s.endCause(), ErrReleased))
		s.cancel(ErrReleased)
		left()
		return s.hold.shareEnded(lost, last)
	})
}

// outcome is what became of something that is done once. Each lease has one: it is small.
type outcome struct {
	// ended is closed when it is done. It is made by whoever waits first, or then.
	ended chan struct{}
	err   error // errUnderWay while it is
}

var (
	errUnderWay = errors.New("under way")
	isDone      = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

// once has it done by the first call, and returns what became of it to all. mu guards
// the outcome. Others wait on a channel, not on a lock as those of a [sync.Once] do: in
// a synctest bubble time passes meanwhile, and what they wait for has an end.
func (o *outcome) once(mu *sync.Mutex, do func() error) error {
	mu.Lock()
	defer mu.Unlock()
	if o.ended == nil && o.err == nil {
		o.err = errUnderWay
		mu.Unlock()
		err := do()
		mu.Lock()
		if o.ended != nil {
			close(o.ended)
		}
		o.ended, o.err = isDone, err
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

// A lease is renewed for as long as the process lives, and a program may mean it.
// But one whose Lease and context nobody can reach any more cannot be released
// either, which is a mistake more often than not: it is logged, once, with where
// it was taken. It costs nothing without WithLogger, and next to nothing until a
// lease is renewed for the first time.

// callers are where a lock was taken: the innermost calls, of which some are the
// library's.
type callers [10]uintptr

// takenAt notes where the lock is being taken, if a forgotten lease would be logged.
func (c *config) takenAt() *callers {
	if c.NoRenewal || !c.ownLog || !c.Log.Enabled(context.Background(), slog.LevelWarn) {
		return nil
	}
	at := new(callers)
	runtime.Callers(4, at[:]) // without those that every lock has
	return at
}

// String returns the file and line of the caller of the library.
func (c *callers) String() string {
	frames := runtime.CallersFrames(c[:])
	for {
		frame, more := frames.Next()
		if frame.PC == 0 {
			return "unknown"
		}
		if !ours(frame.Function) {
			return path.Join(path.Base(path.Dir(frame.File)), path.Base(frame.File)) + ":" + strconv.Itoa(frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// ours reports whether a function is of this package.
func ours(function string) bool {
	return strings.HasPrefix(function, "github.com/leasehold-go/leasehold.")
}

// watch has the leases watched that were not yet.
func (h *hold) watch() {
	if h.taken == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.leases {
		if g.lease != nil {
			runtime.AddCleanup(g.lease, forgotten, g)
			g.lease = nil
		}
	}
}

// forgotten is called when nobody can reach the Lease of g any more.
func forgotten(g *share) {
	h := g.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Cause() != nil || h.told || !slices.Contains(h.leases, g) {
		return
	}
	h.told = true
	go h.cfg.Log.Warn("leasehold: lease is renewed, but nothing in the program can release it any more: its Lease and its context were dropped",
		"key", h.Key(), "lease", h.ID(), "token", h.Token(), "taken", h.taken.String()) // a logger may take its time
}
