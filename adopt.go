package leasehold

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Adopt takes over a lease that was left in the store: by [Lease.Detach], by
// `leasehold acquire`, or through the service. id is its [Lease.ID]. The lease is
// renewed at once, for the TTL of this lock unless it lasts longer, keeps its token,
// and is from then on as one that Lock has returned: its context derives from ctx.
// What the store shows of its owner and labels stays as it was, and [Lease.Owner] is the
// owner that the store shows, so that package fence takes the lease for the same holder. A
// store that cannot be inspected, or not by this client, does not tell it: Lease.Owner is
// then that of this lock, and has to be made the same by [WithName] or [WithReentrantOwner]
// for what is fenced.
//
// The caller must know that nobody else uses the lease: two processes that renew and
// use one lease are not kept apart.
//
// The error matches ErrNotHeld if the lease has ended, is of another key, or was
// never there; ErrBroken, too, if it was broken; ErrMismatch if it is of another
// kind, as far as the store can be inspected, or is held by this client; ErrInvalid
// if the id can be none; and ErrUnknown if the store did not answer for the time of
// [WithMaxOutage]. It is then as it was before, or renewed once.
func (m *Mutex) Adopt(ctx context.Context, id string) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.adopt(ctx, id)
}

// Adopt takes over the lease of a writer; see [Mutex.Adopt].
func (m *RWMutex) Adopt(ctx context.Context, id string) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.write.adopt(ctx, id)
}

// RAdopt takes over the lease of a reader; see [Mutex.Adopt].
func (m *RWMutex) RAdopt(ctx context.Context, id string) (*Lease, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.read.adopt(ctx, id)
}

// Adopt takes over a lease with the places that it has; see [Mutex.Adopt].
func (s *Semaphore) Adopt(ctx context.Context, id string) (*Lease, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.adopt(ctx, id)
}

// leaseID is what an id of a lease looks like.
var leaseID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`) })

func (r *request) adopt(ctx context.Context, id string) (*Lease, error) {
	obs := r.observe(ctx, false)
	l, err := r.takeOver(obs.context(ctx), id, obs)
	if obs.failed(r, err); err != nil {
		r.c.counts.refused.Add(1)
		return nil, lockError(r.key, fmt.Errorf("adopt %q: %w", id, err))
	}
	return l, nil
}

func (r *request) takeOver(ctx context.Context, id string, obs *observation) (*Lease, error) {
	if !leaseID().MatchString(id) {
		return nil, fmt.Errorf("not the id of a lease: %w", ErrInvalid)
	}
	if err := session.CauseOf(ctx); err != nil {
		return nil, err
	}
	if err := r.c.session.Begin(); err != nil {
		return nil, err
	}
	defer r.c.session.Leave()
	if err := r.c.session.NotHeld(r.key, id); err != nil {
		return nil, err
	}
	began := r.c.now()
	seen, err := r.recognize(ctx, id, began)
	if err != nil {
		return nil, err
	}
	cfg, token := r.cfg.ownedBy(seen.Owner), seen.Token
	obs.ownedBy(cfg)
	g, err := r.c.session.Confirm(ctx, &cfg.Terms, driver.Ref{Key: r.key, ID: id, TTL: r.cfg.TTL, Token: token}, began)
	if err != nil {
		return nil, err
	}
	g.Unanswered = true // whoever took the lock does not tell what may be on its way
	if g.Token == 0 {
		g.Token = token
	}
	req := r.Request()
	req.ID = id
	h, err := r.c.hold(cfg, &req, g, obs, nil)
	if err != nil {
		return nil, err // it ends by itself, or is held
	}
	return newLease(obs.context(ctx), h), nil
}

// recognize refuses a lease of another kind, and returns what the store tells of it, the
// zero value if that is nothing.
func (r *request) recognize(ctx context.Context, id string, began time.Time) (seen driver.Holder, err error) {
	store, ok := driver.As[driver.Inspector](r.c.session.Driver())
	if !ok {
		return seen, nil
	}
	snap, err := r.c.session.Inspect(ctx, &r.cfg.Terms, store, r.key, began)
	switch {
	case timing.Final(err):
		return seen, session.CauseOf(ctx) // it tells nobody; the renewal tells what is wrong
	case err != nil:
		return seen, err
	}
	i := slices.IndexFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id })
	switch {
	case i < 0 && slices.ContainsFunc(snap.Waiters, func(w driver.Waiter) bool { return w.ID == id }):
		return seen, fmt.Errorf("waits for the lock: %w", ErrNotHeld)
	case i < 0 && len(snap.Holders) > 0:
		return seen, fmt.Errorf("held by another: %w", ErrNotHeld)
	case i < 0:
		return seen, nil // its renewal tells why
	}
	h := &snap.Holders[i]
	if h.Foreign || h.Mode != r.mode || h.Mode == driver.Shared && snap.Limit != r.limit {
		return seen, fmt.Errorf("a lease of another kind: %w", ErrMismatch)
	}
	return *h, nil
}
