package server

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/audit"
)

// WithAuditLog has the service write to w who held which lock, when, and why it ended: a
// line of JSON for each lease that it grants, and for the end of each, by one call of
// Write at a time. Requests wait for that call: w must be quick, as a file is. A line that
// cannot be written is lost, and the log tells so once. Default: none, which costs
// nothing. Operations are not in it.
//
// A lease that has not been renewed through this service for its TTL has "expired" there,
// though another replica may have kept it.
func WithAuditLog(w io.Writer) Option {
	return func(c *config) error {
		if w == nil {
			return fmt.Errorf("nil audit log: %w", driver.ErrInvalid)
		}
		c.audit = w
		return nil
	}
}

// Bounds of the trail.
const (
	maxFollowed = 200_000 // leases and places whose end is waited for
	expireEvery = time.Second
)

// trail follows leases to their end, for the audit log. A nil trail does nothing.
type trail struct {
	log *audit.Log

	mu  sync.Mutex
	all map[leaseKey]*followed
}

// followed is a lease, or a place in the queue that may become one.
type followed struct {
	line  audit.Line
	since time.Time // of the grant, zero for a place
	began time.Time // of the wait
	until time.Time
}

func (s *Server) newTrail() *trail {
	if s.cfg.audit == nil {
		return nil
	}
	failed := func(err error) {
		if err == nil {
			s.cfg.log.Info("the audit log is written to again")
			return
		}
		s.cfg.log.Error("the audit log cannot be written, so lines are lost", "error", err)
	}
	return &trail{log: audit.New(s.cfg.audit, failed), all: make(map[leaseKey]*followed)}
}

// acquired takes note of the answer to an acquire.
func (t *trail) acquired(x *Exchange, req *driver.Request, got *driver.Reply, now time.Time) {
	if t == nil || got.State != driver.Granted && got.State != driver.Queued {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := leaseKey{req.Key, req.ID}
	f := t.all[of]
	if f == nil {
		f = &followed{began: x.Started, line: audit.Line{
			Key: req.Key, Mode: "exclusive", Lease: req.ID, Owner: req.Owner, Client: x.Client(),
		}}
		if req.Mode == driver.Shared {
			f.line.Mode = "shared"
		}
		if req.Limit > 0 {
			f.line.Limit, f.line.Weight = req.Limit, max(req.Weight, 1)
		}
		if got.State == driver.Granted && got.Replayed { // another replica, or this one before its start, has told
			f.since = now
		}
	}
	if got.State == driver.Queued {
		f.until = now.Add(req.TicketTTL)
	} else {
		t.holds(f, got.Token, req.TTL, now)
	}
	t.keep(of, f)
}

// holds notes a grant or a renewal. The caller holds mu.
func (t *trail) holds(f *followed, token int64, ttl time.Duration, now time.Time) {
	f.until = now.Add(ttl)
	f.line.Token = cmp.Or(token, f.line.Token)
	if !f.since.IsZero() {
		return
	}
	f.since = now
	line := f.line
	line.Time, line.Event, line.Waited = now, audit.Granted, now.Sub(f.began).Milliseconds()
	t.log.Write(&line)
}

// keep follows a lease, if there are not too many. The caller holds mu.
func (t *trail) keep(of leaseKey, f *followed) {
	if len(t.all) < maxFollowed || t.all[of] != nil {
		t.all[of] = f
	}
}

// renewed takes note of the answer to a renewal.
func (t *trail) renewed(ref *driver.Ref, got *driver.Reply, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := leaseKey{ref.Key, ref.ID}
	f := t.all[of]
	switch got.State {
	case driver.Granted:
		if f == nil { // it was granted by way of another replica, which has told
			f = &followed{since: now, line: audit.Line{Key: ref.Key, Lease: ref.ID}}
		}
		t.holds(f, got.Token, ref.TTL, now)
		t.keep(of, f)
	case driver.Queued:
		if f != nil {
			f.until = now.Add(ref.TicketTTL)
		}
	case driver.Gone:
		t.gone(of, got, now)
	}
}

// released takes note of the answer to a release.
func (t *trail) released(ref *driver.Ref, got *driver.Reply, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := leaseKey{ref.Key, ref.ID}
	switch got.State {
	case driver.Released:
		t.end(of, "released", "", "", now)
	case driver.Left:
		delete(t.all, of)
	case driver.Gone:
		t.gone(of, got, now)
	}
}

// broken takes note of a break.
func (t *trail) broken(key, id, by, why string, state driver.State, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch of := (leaseKey{key, id}); state {
	case driver.Released:
		t.end(of, "broken", by, why, now)
	case driver.Left:
		delete(t.all, of)
	}
}

// gone ends a lease that the store no longer has. If its end has been told it is not
// told again. The caller holds mu.
func (t *trail) gone(of leaseKey, got *driver.Reply, now time.Time) {
	switch f := t.all[of]; {
	case f == nil:
	case f.since.IsZero():
		delete(t.all, of)
	case got.Replayed:
		t.end(of, "released", "", "", now)
	case got.Broken:
		t.end(of, "broken", "", got.Reason, now)
	default:
		t.end(of, "gone", "", "", now)
	}
}

// end writes that a lease has ended. The caller holds mu.
func (t *trail) end(of leaseKey, reason, by, detail string, now time.Time) {
	line := audit.Line{Key: of.key, Lease: of.id}
	if f := t.all[of]; f != nil {
		line = f.line
		if !f.since.IsZero() {
			line.Held = max(now.Sub(f.since).Milliseconds(), 1)
		}
		delete(t.all, of)
	}
	line.Time, line.Event, line.Reason, line.By, line.Detail = now, audit.Ended, reason, by, detail
	t.log.Write(&line)
}

// follow ends leases whose time is up, until the service ends.
func (t *trail) follow(serving <-chan struct{}) {
	beat := time.NewTicker(expireEvery)
	defer beat.Stop()
	for {
		select {
		case <-serving:
			return
		case <-beat.C:
			t.expire(time.Now())
		}
	}
}

func (t *trail) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, f := range t.all {
		switch {
		case !now.After(f.until):
		case f.since.IsZero():
			delete(t.all, of)
		default:
			t.end(of, "expired", "", "not renewed through this service", f.until)
		}
	}
}
