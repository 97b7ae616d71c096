package server

import (
	"cmp"
	"io"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/audit"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// WithAuditLog sets the writer of the audit log: a line of JSON for each lease that the service
// grants, and for the end of each, with client, time and reason. Write is called by one request
// at a time. Requests wait for that call: w must be quick, as a file is. A line that cannot be
// written is lost, and the first failure is logged. Default: no audit log. Operations are not
// in it.
//
// A lease that has not been renewed through this service for its TTL has "expired" there,
// though another replica may have kept it.
func WithAuditLog(w io.Writer) Option {
	return given("audit log", w != nil, func(c *config) { c.audit = w })
}

// Bounds of the trail.
const (
	maxFollowed = 200_000 // leases and places that are followed to their end
	expireEvery = time.Second
)

// trail follows leases to their end, for the audit log. The methods of a nil trail return at
// once.
//
// Several requests receive answers of the store about one lease, and note them in any order. So
// a renewal, a release and a break name the lease before they ask the store. Until they are
// answered the trail keeps its entry of the lease, with the end if that was noted.
type trail struct {
	log *audit.Log

	mu       sync.Mutex
	all      map[leaseKey]*followed
	followed int // the number of entries with kept
}

// followed is a lease, or a place in the queue that may become one. The trail's mu guards
// it.
type followed struct {
	line  audit.Line
	since time.Time // of the grant, zero for a place
	began time.Time // of the wait
	until time.Time

	asked  int  // requests about it that have not been answered
	kept   bool // it is followed to its end
	ended  bool // its end was written, or is not to be written
	ending ending
	// unclaimed is the reason of a break that a renewal or release has noticed. The request that
	// broke the lease adds the client; if none under way did, the client is unknown here.
	unclaimed *string
}

// ending holds the times of the first release and the first break of a lease that are under way.
type ending struct {
	released, broken time.Time
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

// ask notes that a request other than an acquire is about to ask the store about a lease, and
// sets the entry of the lease in e. The caller calls answered when the request has ended.
func (t *trail) ask(e *event, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of := leaseKey{e.ref[0].Key, e.ref[0].ID}
	f := t.all[of]
	if f == nil {
		f = &followed{line: audit.Line{Key: of.key, Lease: of.id}}
		t.all[of] = f
	}
	f.asked++
	switch under := &f.ending; e.verb {
	case releasing:
		under.released = cmp.Or(under.released, now)
	case breaking:
		under.broken = cmp.Or(under.broken, now)
	}
	e.about = f
}

// answered notes the end of a request.
func (t *trail) answered(e *event) {
	f := e.about
	if f == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.asked--; f.asked > 0 || f.ended {
		return
	}
	if f.unclaimed != nil {
		t.end(f, "broken", "", *f.unclaimed, time.Now())
		return
	}
	f.ending = ending{}
	if !f.kept {
		t.drop(f)
	}
}

// note follows a lease by the answer to a request.
func (t *trail) note(e *event, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := e.about
	if f == nil {
		if f = t.all[leaseKey{e.ref[0].Key, e.ref[0].ID}]; f == nil {
			f = new(followed)
		}
	}
	switch state := e.got.State; {
	case f.ended:
	case state == driver.Granted, state == driver.Queued && (f.kept || e.verb == acquiring):
		t.lasts(f, e, now)
	case state == driver.Left:
		t.drop(f)
	case state == driver.Released && e.verb == breaking:
		t.end(f, "broken", e.x.Client(), e.reason, f.ending.broken)
	case state == driver.Released:
		t.end(f, "released", "", "", f.ending.released)
	case state == driver.Gone && (e.verb == renewing || e.verb == releasing):
		t.gone(f, &e.got, now)
	}
}

// lasts notes a grant, a renewal, or a place. The caller holds mu.
func (t *trail) lasts(f *followed, e *event, now time.Time) {
	if req := e.req; req != nil && !f.kept {
		f.since, f.began, f.line = time.Time{}, e.x.Started, audit.Line{Key: req.Key, Lease: req.ID, Owner: req.Owner, Client: e.x.Client()}
		f.line.Mode = wire.ModeName(req.Mode)
		if req.Limit > 0 {
			f.line.Limit, f.line.Weight = req.Limit, max(req.Weight, 1)
		}
	}
	known := !f.kept && (e.verb == renewing || e.got.Replayed) // another replica wrote the grant, or this one before a restart
	t.keep(f)
	if e.got.State == driver.Queued {
		f.until = now.Add(e.ref[0].TicketTTL)
		return
	}
	f.until = now.Add(e.ref[0].TTL)
	f.line.Token = cmp.Or(e.got.Token, f.line.Token)
	switch {
	case known:
		f.since = now
	case f.since.IsZero():
		f.since = now
		line := f.line
		line.Time, line.Event, line.Waited = now, audit.Granted, now.Sub(f.began).Milliseconds()
		t.log.Write(&line)
	}
}

// keep follows a lease, if there are not too many. The caller holds mu.
func (t *trail) keep(f *followed) {
	if f.kept || t.followed >= maxFollowed {
		return
	}
	f.kept = true
	t.followed++
	t.all[leaseKey{f.line.Key, f.line.Lease}] = f
}

// drop stops following a lease: answers that are noted later are ignored. The caller holds mu.
func (t *trail) drop(f *followed) {
	f.ended = true
	if f.kept {
		f.kept = false
		t.followed--
	}
	delete(t.all, leaseKey{f.line.Key, f.line.Lease})
}

// gone ends a lease that the store no longer has. If the lease is not followed, its end has been
// written, or another request or replica writes it. The caller holds mu.
func (t *trail) gone(f *followed, got *driver.Reply, now time.Time) {
	switch under := f.ending; {
	case !f.kept:
	case f.since.IsZero():
		t.drop(f)
	case got.Replayed:
		t.end(f, "released", "", "", cmp.Or(under.released, now))
	case got.Broken && !under.broken.IsZero():
		reason := got.Reason
		f.unclaimed = &reason
	case got.Broken:
		t.end(f, "broken", "", got.Reason, now)
	default:
		t.end(f, "gone", "", "", now)
	}
}

// end writes that a lease has ended. The caller holds mu.
func (t *trail) end(f *followed, reason, by, detail string, at time.Time) {
	if at.Before(f.since) { // the request that ended it began before the grant
		at = f.since
	}
	line := f.line
	if !f.since.IsZero() {
		line.Held = max(at.Sub(f.since).Milliseconds(), 1)
	}
	line.Time, line.Event, line.Reason, line.By, line.Detail = at, audit.Ended, reason, by, detail
	t.drop(f)
	t.log.Write(&line)
}

// expire writes the ends of leases whose time is up. It leaves out leases with a request under
// way, whose answer has the exact reason.
func (t *trail) expire() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.all {
		switch {
		case !f.kept || f.asked > 0 || !now.After(f.until):
		case f.since.IsZero():
			t.drop(f)
		default:
			t.end(f, "expired", "", "not renewed through this service", f.until)
		}
	}
}
