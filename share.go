package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	inner  context.Context // of the lease, but for the clock
	cancel context.CancelCauseFunc
	inside bool // it re-entered; not changed

	// These are guarded by hold.mu.
	detach func() bool // from the parent context
	lease  *Lease      // until it is watched
	state  State       // in which it ended; Held until then
	end    outcome
}

// follow gives the lease back when parent ends.
func (s *share) follow(parent context.Context) {
	if parent.Done() == nil {
		return
	}
	s.hold.follow(s, context.AfterFunc(parent, func() {
		// Those that follow parent are told in any order, this lease's context perhaps last.
		<-s.inner.Done()
		if s.parentEnded() != nil {
			_ = s.giveBack()
		}
	}))
}

// parentEnded is why the lease ends with its parent context; nil if it does not. If
// that was because the lease under which this one re-entered was released, the lock is
// still held: the last release frees it, and who works here has to see the end of the
// context first.
func (s *share) parentEnded() error {
	if s.inner.Err() == nil || !s.hold.Live() {
		return nil
	}
	cause := context.Cause(s.inner)
	if s.inside && errors.Is(cause, ErrReleased) {
		return nil
	}
	return &contextEnded{cause}
}

// live compares the clock, and ends what has run out: when it returns the context of
// a lease that is over has ended, also if somebody else is about to end it.
func (s *share) live() {
	if cause := s.hold.Over(); cause != nil {
		s.cancel(cause)
	}
}

// giveBack is Release.
func (s *share) giveBack() error {
	return s.end.once(&s.hold.mu, func() error {
		s.hold.c.session.Enter()
		defer s.hold.c.session.Leave()
		s.hold.unfollow(s)
		ended := s.parentEnded()
		lost, last := s.hold.remove(s, cmp.Or(ended, ErrReleased))
		s.cancel(ErrReleased)
		if lost == nil && ended != nil {
			lost = fmt.Errorf("%w: %w", ErrLost, ended)
		}
		return s.hold.shareEnded(lost, last)
	})
}

// outcome is what became of something that is done once.
type outcome struct {
	begun, done bool
	ended       chan struct{} // closed when it is done; made by whoever waits first
	err         error
}

// once has it done by the first call, and returns what became of it to all. mu guards
// the outcome. Others wait on a channel, not on a lock as those of a [sync.Once] do: in
// a synctest bubble time passes meanwhile, and what they wait for has an end.
func (o *outcome) once(mu *sync.Mutex, do func() error) error {
	mu.Lock()
	defer mu.Unlock()
	if !o.begun {
		o.begun = true
		mu.Unlock()
		err := do()
		mu.Lock()
		o.done, o.err = true, err
		if o.ended != nil {
			close(o.ended)
		}
		return err
	}
	if !o.done {
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
// either, which is a mistake more often than not: it is told of, once, with where
// it was taken. It costs nothing without a logger, and next to nothing until a
// lease is renewed for the first time.

// callers are where a lock was taken: the innermost calls, of which some are the
// library's.
type callers [10]uintptr

// takenAt notes where the lock is being taken, if anybody is to be told.
func (c *config) takenAt() *callers {
	if c.NoRenewal || !c.Log.Enabled(context.Background(), slog.LevelWarn) {
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
