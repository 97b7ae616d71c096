package leasehold

import (
	"context"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// trail is one acquisition, and the lease it leads to, as observers see it. A
// nil trail is that of a client without observers.
type trail struct {
	observers []*Observer
	ctx       context.Context
	lock      LockInfo
	started   time.Time
	queued    bool // belongs to the caller's goroutine
	granted   bool // so does this
}

// trail begins one, nil if nobody observes.
func (r *request) trail(ctx context.Context, wait bool) *trail {
	if len(r.cfg.observers) == 0 {
		return nil
	}
	t := &trail{observers: r.cfg.observers, started: r.c.now()}
	t.lock = LockInfo{
		Key: r.key, Class: r.c.classes.bound(r.cfg.class(r.key)), Mode: r.mode,
		Limit: r.limit, Weight: r.weight, Wait: wait && r.cfg.maxWait != 0,
	}
	for _, o := range t.observers {
		if o.Acquire != nil {
			ctx = o.Acquire(ctx, t.lock)
		}
	}
	t.ctx = ctx
	return t
}

// context returns the one to go on with in place of ctx.
func (t *trail) context(ctx context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return t.ctx
}

// detached returns the context of requests that nobody waits for any more.
func (t *trail) detached() context.Context {
	if t == nil {
		return context.Background()
	}
	return context.WithoutCancel(t.ctx)
}

func (t *trail) waiting(position int, holder string) {
	if t == nil || t.queued {
		return
	}
	t.queued = true
	event := WaitingInfo{LockInfo: t.lock, Position: position, Holder: holder}
	for _, o := range t.observers {
		if o.Waiting != nil {
			o.Waiting(t.ctx, event)
		}
	}
}

// acquired tells of a lease.
func (t *trail) acquired(h *hold, handed time.Time) {
	if t == nil {
		return
	}
	event := AcquiredInfo{ID: h.ID(), Token: h.Token()}
	if !handed.IsZero() {
		event.HandOff = h.Granted().Sub(handed)
	}
	t.granted = true
	t.done(h.Granted(), event)
}

// failed tells of a call that ends without a lease.
func (t *trail) failed(r *request, err error) {
	if t != nil && !t.granted {
		t.done(r.c.now(), AcquiredInfo{Err: err})
	}
}

func (t *trail) done(now time.Time, event AcquiredInfo) {
	event.LockInfo, event.Waited, event.Queued = t.lock, now.Sub(t.started), t.queued
	for _, o := range t.observers {
		if o.Acquired != nil {
			t.ctx = o.Acquired(t.ctx, event)
		}
	}
}

func (t *trail) renewed(h *hold, sent time.Time, reply *driver.Reply, err error) {
	if t == nil {
		return
	}
	if err == nil && reply.State != driver.Granted {
		err = session.Gone(reply)
	}
	event := RenewedInfo{LockInfo: t.lock, ID: h.ID(), Took: h.c.now().Sub(sent), Err: err}
	for _, o := range t.observers {
		if o.Renewed != nil {
			o.Renewed(t.ctx, event)
		}
	}
}

func (t *trail) ended(h *hold, cause error) {
	if t == nil {
		return
	}
	event := EndedInfo{LockInfo: t.lock, ID: h.ID(), Token: h.Token(), Held: h.Held(), Cause: cause}
	for _, o := range t.observers {
		if o.Ended != nil {
			o.Ended(t.ctx, event)
		}
	}
}

// now is the time, where somebody wants to know.
func (t *trail) now(c *Client) time.Time {
	if t == nil {
		return time.Time{}
	}
	return c.now()
}

func (t *trail) released(h *hold, begun time.Time, err error) {
	if t == nil {
		return
	}
	event := ReleasedInfo{LockInfo: t.lock, ID: h.ID(), Took: h.c.now().Sub(begun), Err: err}
	for _, o := range t.observers {
		if o.Released != nil {
			o.Released(t.ctx, event)
		}
	}
}

// classes bounds how many classes there are.
type classes struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *classes) bound(class string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.seen[class]:
		return class
	case len(s.seen) == MaxClasses:
		return "other"
	case s.seen == nil:
		s.seen = make(map[string]bool)
	}
	s.seen[class] = true
	return class
}
