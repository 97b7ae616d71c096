package leasehold

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// observation is one acquisition, and the lease it leads to, as observers see it. A
// nil observation is that of a client without observers.
type observation struct {
	observers []*Observer
	ctx       context.Context
	lock      LockInfo
	started   time.Time
	queued    bool // belongs to the caller's goroutine
	granted   bool // so does this
}

// observe begins one, nil if nobody observes.
func (r *request) observe(ctx context.Context, wait bool) *observation {
	if len(r.cfg.observers) == 0 {
		return nil
	}
	obs := &observation{observers: r.cfg.observers, started: r.c.now()}
	obs.lock = LockInfo{
		Key: r.key, Class: r.c.classes.bound(r.cfg.class(r.key)), Mode: r.mode,
		Limit: r.limit, Weight: r.weight, Wait: wait && r.cfg.maxWait != 0,
		Owner: r.cfg.owner(),
	}
	for _, o := range obs.observers {
		if o.Acquire != nil {
			ctx = o.Acquire(ctx, obs.lock)
		}
	}
	obs.ctx = ctx
	return obs
}

// ownedBy notes whose lease is taken over, as cfg has it.
func (obs *observation) ownedBy(cfg *config) {
	if obs != nil {
		obs.lock.Owner = cfg.owner()
	}
}

// context returns the one to go on with in place of ctx.
func (obs *observation) context(ctx context.Context) context.Context {
	if obs == nil {
		return ctx
	}
	return obs.ctx
}

// detached returns the context of requests that nobody waits for any more.
func (obs *observation) detached() context.Context {
	if obs == nil {
		return context.Background()
	}
	return context.WithoutCancel(obs.ctx)
}

func (obs *observation) waiting(position int, holder string) {
	if obs == nil || obs.queued {
		return
	}
	obs.queued = true
	event := WaitingInfo{LockInfo: obs.lock, Position: position, Holder: holder}
	for _, o := range obs.observers {
		if o.Waiting != nil {
			o.Waiting(obs.ctx, event)
		}
	}
}

// acquired tells of a lease.
func (obs *observation) acquired(h *hold, handed time.Time) {
	if obs == nil {
		return
	}
	event := AcquiredInfo{ID: h.ID(), Token: h.Token()}
	if !handed.IsZero() {
		event.Handover = h.Granted().Sub(handed)
	}
	obs.granted = true
	obs.done(h.Granted(), event)
}

// failed tells of a call that ends without a lease.
func (obs *observation) failed(r *request, err error) {
	if obs != nil && !obs.granted {
		obs.done(r.c.now(), AcquiredInfo{Err: err})
	}
}

func (obs *observation) done(now time.Time, event AcquiredInfo) {
	event.LockInfo, event.Waited, event.Queued = obs.lock, now.Sub(obs.started), obs.queued
	for _, o := range obs.observers {
		if o.Acquired != nil {
			obs.ctx = o.Acquired(obs.ctx, event)
		}
	}
}

func (obs *observation) renewed(h *hold, sent time.Time, reply *driver.Reply, err error) {
	if obs == nil {
		return
	}
	if err == nil && reply.State != driver.Granted {
		err = session.Gone(reply)
	}
	event := RenewedInfo{LockInfo: obs.lock, ID: h.ID(), Took: h.c.now().Sub(sent), Err: err}
	for _, o := range obs.observers {
		if o.Renewed != nil {
			o.Renewed(obs.ctx, event)
		}
	}
}

func (obs *observation) ended(h *hold, cause error) {
	if obs == nil {
		return
	}
	event := EndedInfo{LockInfo: obs.lock, ID: h.ID(), Token: h.Token(), Held: h.Held(), Cause: cause}
	for _, o := range obs.observers {
		if o.Ended != nil {
			o.Ended(obs.ctx, event)
		}
	}
}

// now is the time, where somebody wants to know.
func (obs *observation) now(c *Client) time.Time {
	if obs == nil {
		return time.Time{}
	}
	return c.now()
}

func (obs *observation) released(h *hold, begun time.Time, err error) {
	if obs == nil {
		return
	}
	event := ReleasedInfo{LockInfo: obs.lock, ID: h.ID(), Took: h.c.now().Sub(begun), Err: err}
	for _, o := range obs.observers {
		if o.Released != nil {
			o.Released(obs.ctx, event)
		}
	}
}

// classes bounds how many classes there are, and has them be text: metrics and traces take
// nothing else, and a part of a key may end within a character.
type classes struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *classes) bound(class string) string {
	class = strings.ToValidUTF8(class, "\uFFFD")
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

// WaitEvent is what a call that waits for a lock knows about its wait.
type WaitEvent struct {
	// Key is that of the lock.
	Key string
	// Position is the place in the queue, 1 for the head.
	Position int
	// Holder is the lease that stays longest, as the store described it last; its
	// Remaining is what is left of it by now unless it was renewed. It is not known any
	// more once the place in the queue has changed: it then has no ID, and a Remaining
	// at the head of the queue only. [Client.Inspect] tells who holds the lock now.
	Holder Holder
	// Waited is how long the call has waited.
	Waited time.Duration
}

type observerKey struct{}

// ObserveWait returns a context under which a Lock that has to wait in the
// queue calls f: when it has been queued, and with every later answer of the
// store, at least every 5 seconds while the store answers. It is for showing a
// wait to people.
//
// f is called by the goroutine that called Lock, so it needs no locking, and is
// not called once Lock has returned. The lock is not taken while f runs:
// f must be quick.
func ObserveWait(ctx context.Context, f func(WaitEvent)) context.Context {
	return context.WithValue(ctx, observerKey{}, f)
}

// observer returns what tells the function that ctx carries how a wait for the lock
// goes on, nil if there is none.
func (r *request) observer(ctx context.Context) func(session.Progress) {
	f, ok := ctx.Value(observerKey{}).(func(WaitEvent))
	if !ok {
		return nil
	}
	return func(p session.Progress) {
		f(WaitEvent{Key: r.key, Position: p.Position, Holder: p.Holder, Waited: p.Waited})
	}
}
