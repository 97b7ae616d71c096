package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
