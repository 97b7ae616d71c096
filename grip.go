package leasehold

import (
	"context"
	"errors"
)

// grip is a [Lease] as its hold knows it. The hold does not know the Lease itself,
// so that it is noticed when nobody else does any more: see forgotten.
type grip struct {
	hold   *hold
	inner  context.Context // of the lease, but for the clock
	cancel context.CancelCauseFunc
	detach func() bool // from the parent context; guarded by hold.mu

	parts []*grip // of a lease of several locks, in the order they were taken

	// The end, guarded by hold.mu.
	ending bool          // somebody gives it back, or has
	done   bool          // that is done
	inside bool          // it re-entered; not changed
	ended  chan struct{} // closed when it is done; made by whoever waits for it first
	err    error         // of Release

	lease *Lease // until it is watched; guarded by hold.mu
}

// follow gives the lease back when parent ends.
func (g *grip) follow(parent context.Context) {
	if parent.Done() != nil {
		g.hold.follow(g, context.AfterFunc(parent, func() { g.parentEnded(context.Cause(parent)) }))
	}
}

// parentEnded gives the lease back when the parent context ended first. If that
// was because the lease under which this one re-entered was released, it is still
// held: the last release frees the lock, and who works here has to see the end of
// the context first.
func (g *grip) parentEnded(cause error) {
	if !g.hold.Live() || g.inside && errors.Is(cause, ErrReleased) {
		return
	}
	_ = g.endOnce(func() error { return g.release(cause) })
}

// giveBack is Release.
func (g *grip) giveBack() error {
	return g.endOnce(func() error { return g.release(ErrReleased) })
}

// live compares the clock, and ends what has run out. When it returns false
// the context has ended, also if somebody else is about to end it.
func (g *grip) live() bool {
	if g.parts == nil {
		cause := g.hold.Over()
		if cause != nil {
			g.cancel(cause)
		}
		return cause == nil
	}
	live := true
	for _, p := range g.parts {
		live = p.live() && live
	}
	return live
}

// endOnce has the lease ended by the first call, and returns the outcome of that
// to all. Others wait on a channel, not on a lock as those of a [sync.Once] do: in
// a synctest bubble time passes meanwhile, and what they wait for has an end.
func (g *grip) endOnce(end func() error) error {
	mu := &g.hold.mu
	mu.Lock()
	defer mu.Unlock()
	if !g.ending {
		g.ending = true
		mu.Unlock()
		err := end()
		mu.Lock()
		g.done, g.err = true, err
		if g.ended != nil {
			close(g.ended)
		}
		return err
	}
	if !g.done {
		if g.ended == nil {
			g.ended = make(chan struct{})
		}
		ended := g.ended
		mu.Unlock()
		<-ended
		mu.Lock()
	}
	return g.err
}

func (g *grip) release(cause error) error {
	g.hold.c.session.Enter()
	defer g.hold.c.session.Leave()
	g.hold.unfollow(g)
	if g.parts != nil {
		return releaseAll(g.parts)
	}
	lost, back := g.hold.remove(g, cause)
	g.cancel(cause)
	switch {
	case back:
		return g.hold.giveBack(lost, g.hold.cfg.ReleaseTimeout)
	case lost != nil:
		return lockError(g.hold.Key(), lost)
	}
	return nil
}
