package server

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
)

func leaseRoutes() []route {
	acquire := route{Handle: (*Server).acquire, Route: Route{
		Method: http.MethodPost, Path: "/v1/locks/{name}", Operation: "acquire",
		Summary: "Take a lock, or a place in its queue", Verb: auth.Acquire,
		Body: wire.Acquire{}, Reply: wire.Lease{},
		Success: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted},
		Causes:  []*Cause{Held, Broken, Released, Mismatch, TooLarge, TooMany, Unsupported, Unavailable, Draining, Unknown},
	}}
	renew := route{Handle: (*Server).renew, Route: Route{
		Method: http.MethodPut, Path: "/v1/locks/{name}/leases/{id}", Operation: "renew",
		Summary: "Renew a lease, or keep a place in the queue", Verb: auth.Acquire,
		Body: wire.Renew{}, Reply: wire.Lease{},
		Success: []int{http.StatusOK, http.StatusAccepted},
		Causes:  []*Cause{Gone, Broken, Released, Mismatch, TooLarge, Unsupported, Unavailable, Draining, Unknown},
	}}
	batch := route{Handle: (*Server).renewBatch, Route: Route{
		Method: http.MethodPost, Path: "/v1/leases:renew", Operation: "renewBatch",
		Summary: "Renew many leases at once", Verb: auth.Acquire,
		Body: wire.Renewals{}, Reply: wire.Renewed{},
		Success: []int{http.StatusOK}, Causes: []*Cause{TooLarge},
	}}
	breaks := route{Handle: (*Server).breakLease, Route: Route{
		Method: http.MethodPost, Path: "/v1/locks/{name}:break", Operation: "break",
		Summary: "End a lease, or a place in the queue, by force", Verb: auth.Break,
		Body: wire.Break{}, Reply: wire.Lease{},
		Success: []int{http.StatusOK},
		Causes:  []*Cause{NotHeld, Mismatch, TooLarge, Unsupported, Unavailable, Draining, Unknown},
	}}
	release := route{Handle: (*Server).release, Route: Route{
		Method: http.MethodDelete, Path: "/v1/locks/{name}/leases/{id}", Operation: "release",
		Summary: "Release a lease, or leave the queue", Verb: auth.Acquire,
		Query: []Parameter{
			{Name: "keepMs", Type: "integer", Description: "keep the lock closed for this time, 86400000 at most, for jobs that are shorter than the clocks of their hosts differ"},
			{Name: "forbidMs", Type: "integer", Description: "refuse the lease id for this time, so that a late repetition of its acquire has no effect; default 60000, which is always allowed"},
			{Name: "visit", Type: "string", Description: "end the lease or place only if the visit of this name asked for it, and for a lease no other visit did"},
			preferRepresentation,
		},
		Reply:   wire.Lease{},
		Success: []int{http.StatusOK, http.StatusNoContent},
		Causes:  []*Cause{Gone, Broken, Moved, Mismatch, Unavailable, Draining, Unknown},
	}}
	releaseByKey := byKey(release, http.MethodPost, "/v1/leases:release")
	releaseByKey.Body, releaseByKey.Query = wire.Release{}, []Parameter{preferRepresentation}
	releaseByKey.Success = []int{http.StatusOK}
	releaseByKey.Causes = append([]*Cause{TooLarge}, release.Causes...)
	return []route{
		acquire, renew, batch, breaks, release,
		byKey(acquire, http.MethodPost, "/v1/locks"), byKey(renew, http.MethodPut, "/v1/leases"),
		byKey(breaks, http.MethodPost, "/v1/locks:break"), releaseByKey,
	}
}

var preferRepresentation = Parameter{Name: "Prefer", Type: "string", Header: true, Description: "return=representation answers 200 and the lease that was ended"}

// byKey returns the form of an operation that names the lock outside the path: a proxy may
// change a path.
func byKey(of route, method, path string) route {
	of.Method, of.Path, of.ByKey = method, path, true
	return of
}

// leaseOf returns the JSON of a reply. It has the holders only if the client may read the lock.
func leaseOf(x *Exchange, key, id string, got driver.Reply) wire.Lease {
	if !x.may(auth.Read, key) {
		got.Holders = nil
	}
	return wire.LeaseOf(key, id, got)
}

// held returns the problem of a lock that was not granted.
func held(l *wire.Lease) *problem {
	p := newProblem(Held, "the lock %q is held by others", l.Key)
	p.Key, p.LeaseID, p.FreeIn, p.Clock, p.Holders, p.Repeated = l.Key, l.LeaseID, l.FreeIn, l.Clock, l.Holders, l.Repeated
	return p.After(max(l.FreeIn.Duration(), retryLater))
}

// lost returns the problem of a lease or ticket that has ended, with the reason.
func lost(l *wire.Lease) *problem {
	p := newProblem(Gone, "the store no longer has the lease %s of %q", l.LeaseID, l.Key)
	switch {
	case l.Broken:
		p = newProblem(Broken, "the lease %s of %q was broken: %s", l.LeaseID, l.Key, l.Reason)
	case l.Again:
		p = newProblem(Released, "the lease %s of %q has been released", l.LeaseID, l.Key)
	}
	p.Key, p.LeaseID, p.Broken, p.Reason, p.Clock = l.Key, l.LeaseID, l.Broken, l.Reason, l.Clock
	return p
}

// leaseRef returns the lease that the path names, or else the lease of the body.
func leaseRef(x *Exchange, key, id string) (driver.Ref, error) {
	x.LeaseID = x.id
	switch {
	case x.LeaseID == "":
		x.LeaseID = id
	case id != "":
		return driver.Ref{}, newProblem(Invalid, "the path names the lease: leaseId is not allowed in the body")
	}
	name, err := lockName(x, key)
	return driver.Ref{Key: name, ID: x.LeaseID}, cmp.Or(err, check.ID(x.LeaseID))
}

// renewal adds the values of a body to the reference of a lease, and checks them.
func (s *Server) renewal(ref driver.Ref, b *wire.Renew) (driver.Ref, error) {
	ttl, err := s.lifetime(b.TTL)
	ticket := millisOr(b.Ticket, defaultTicket)
	ref.TTL, ref.TicketTTL, ref.HintAddress, ref.Token, ref.Level = ttl, ticket.Duration(), b.Notify, int64(b.MinToken), b.Level
	err = cmp.Or(err,
		checkMillis("ticketMs", ticket, 0, maxTicket),
		check.Text("notify", b.Notify, 0, check.MaxKey),
		check.Range("minToken", b.MinToken, 0, 1<<53-1),
		check.Visit(b.Visit, maxVisit),
	)
	ref.Visit = s.inflight.renewerOf(b.Visit)
	if err == nil {
		ref.HintAddress, err = s.checkAddress(b.Notify)
	}
	return ref, err
}

// renew prolongs a lease, or keeps a place in the queue.
func (s *Server) renew(w *answer, r *http.Request) error {
	b, err := decode[wire.Renew](r)
	if err != nil {
		return err
	}
	ref, err := leaseRef(&w.x, b.Key, b.LeaseID)
	if err != nil {
		return err
	}
	if ref, err = s.renewal(ref, &b); err != nil {
		return err
	}
	sent := clock.Now()
	e := &event{verb: renewing, ref: [1]driver.Ref{ref}}
	err = s.ask(r, e, func(ctx context.Context) {
		s.verbs.Renew(ctx, e.ref[:], e.answer)
		s.tellRelease(ctx, e)
	})
	if err != nil {
		return err
	}
	l := renewed(&w.x, e, sent)
	switch e.got.State {
	case driver.Granted:
		reply(w, http.StatusOK, &l)
	case driver.Queued:
		w.Header().Set("Retry-After", seconds(l.RetryAfter.Duration()))
		reply(w, http.StatusAccepted, &l)
	default:
		return lost(&l)
	}
	return nil
}

// tellRelease finds out whether a lease that is gone was released. It sends an acquire with a
// token so high that no store grants it: a store looks for a released id before it compares
// tokens.
func (s *Server) tellRelease(ctx context.Context, e *event) {
	ref, got := &e.ref[0], &e.got
	req := driver.Request{Key: ref.Key, ID: ref.ID, TTL: ref.TTL, SingleUseID: true, MinToken: 1<<53 - 1}
	if e.err != nil || got.State != driver.Gone || got.Broken || driver.Supports(s.store, req) != nil {
		return
	}
	before, err := s.verbs.Acquire(ctx, req)
	got.Replayed = err == nil && before.State == driver.Gone && before.Replayed
}

// renewed returns the JSON of the answer to a renewal that was sent at sent. That is a time of
// the clock of leases, since the machine may have been suspended in between.
func renewed(x *Exchange, e *event, sent time.Time) wire.Lease {
	ref := &e.ref[0]
	l := leaseOf(x, ref.Key, ref.ID, e.got)
	switch e.got.State {
	case driver.Granted:
		l.TTL = wire.MillisOf(ref.TTL)
		l.Remaining = wire.Floor(max(ref.TTL-clock.Now().Sub(sent), 0))
	case driver.Queued:
		l.Ticket, l.RetryAfter = wire.Floor(ref.TicketTTL), wire.Floor(min(retryLater, ref.TicketTTL/3))
	}
	return l
}

// renewBatch renews many leases, each with an answer of its own. Unlike renew it does not find
// out whether a lease that is gone was released: that would delay the answer, which the other
// leases need before they expire.
func (s *Server) renewBatch(w *answer, r *http.Request) error {
	b, err := decode[wire.Renewals](r)
	if err != nil {
		return err
	}
	out := wire.Renewed{Leases: make([]wire.Renewal, len(b.Leases))}
	refs, index := make([]driver.Ref, 0, len(b.Leases)), make([]int, 0, len(b.Leases))
	for i := range b.Leases {
		ref, err := s.batchRef(&w.x, &b.Leases[i])
		if err != nil {
			out.Leases[i] = failed(&b.Leases[i], err)
			continue
		}
		refs, index = append(refs, ref), append(index, i)
	}
	sent := clock.Now()
	now := time.Now()
	ctx := s.timeouts.begin(r.Context(), now)
	all := make([]event, len(refs))
	for i := range all {
		all[i].verb, all[i].ref[0] = renewing, refs[i]
		s.trail.ask(&all[i], now)
	}
	defer func() {
		for i := range all {
			s.trail.answered(&all[i])
		}
	}()
	if len(refs) > 0 {
		s.verbs.Renew(ctx, refs, func(i int, got driver.Reply, err error) { all[i].answer(i, got, err) })
	}
	var gone []event
	for i, at := range index {
		e := &all[i]
		if e.err != nil {
			out.Leases[at] = failed(&b.Leases[at], e.err)
		} else {
			out.Leases[at] = wire.Renewal{Lease: renewed(&w.x, e, sent)}
		}
		if e.err == nil && e.got.State == driver.Gone {
			gone = append(gone, *e)
			e.about = nil // until it is known why
		} else {
			s.publish(e)
		}
	}
	reply(w, http.StatusOK, &out)
	if len(gone) > 0 {
		s.publishGone(r.Context(), gone)
	}
	return nil
}

// goneAtOnce bounds how many gone leases of one batch the store is asked about at a time.
const goneAtOnce = 8

// publishGone publishes that leases of a batch are gone. It works in the background, because it
// has to find out which of them were released.
func (s *Server) publishGone(ctx context.Context, gone []event) {
	ctx = s.timeouts.begin(ctx, time.Now())
	next := make(chan *event, len(gone))
	for i := range gone {
		next <- &gone[i]
	}
	close(next)
	look := func() {
		for e := range next {
			s.tellRelease(ctx, e)
			s.publish(e)
			s.trail.answered(e)
		}
	}
	for range min(len(gone), goneAtOnce) {
		if !s.start(look) { // the service has ended
			for e := range next {
				s.trail.answered(e)
			}
		}
	}
}

// batchRef returns the reference of one lease of a batch, if the client may renew it.
func (s *Server) batchRef(x *Exchange, b *wire.Renew) (driver.Ref, error) {
	if err := cmp.Or(check.Key(b.Key), check.ID(b.LeaseID)); err != nil {
		return driver.Ref{}, err
	}
	if !x.may(auth.Acquire, b.Key) {
		return driver.Ref{}, forbidden(auth.Acquire)
	}
	return s.renewal(driver.Ref{Key: b.Key, ID: b.LeaseID}, b)
}

// failed returns the answer for a lease that could not be renewed.
func failed(b *wire.Renew, err error) wire.Renewal {
	return wire.Renewal{Lease: wire.Lease{Key: b.Key, LeaseID: b.LeaseID}, Problem: &problemOf(err).Problem}
}

// release ends a lease, or leaves the queue.
func (s *Server) release(w *answer, r *http.Request) error {
	b, err := askedRelease(&w.x, r)
	if err != nil {
		return err
	}
	ref, err := leaseRef(&w.x, b.Key, b.LeaseID)
	if err != nil {
		return err
	}
	forbid := millisOr(b.Forbid, timing.ForbidFor)
	err = cmp.Or(
		// The maximum TTL is no bound here: it limits the effect of a dead client. This client is
		// alive, and could as well have kept the lease.
		checkMillis("keepMs", b.Keep, 0, check.MaxTTL),
		checkMillis("forbidMs", forbid, 0, max(s.cfg.maxTTL, timing.ForbidFor)),
		check.Visit(b.Visit, maxVisit),
	)
	if err != nil {
		return err
	}
	ref.KeepClosed, ref.RejectIDFor, ref.SingleUseID, ref.Visit = b.Keep.Duration(), forbid.Duration(), true, b.Visit
	ref.Uncontended = s.contention.isAbsent(ref.Key)
	e := event{verb: releasing, ref: [1]driver.Ref{ref}}
	if err := s.ask(r, &e, func(ctx context.Context) { e.got, e.err = s.verbs.Release(ctx, ref) }); err != nil {
		return err
	}
	got := &e.got
	l := leaseOf(&w.x, ref.Key, ref.ID, e.got)
	switch {
	case got.State == driver.Gone && !got.Replayed: // a release may be repeated
		return lost(&l)
	case preference(r, "return") == "representation":
		w.Header().Set("Preference-Applied", "return=representation")
		reply(w, http.StatusOK, &l)
	case got.State == driver.Busy:
		return newProblem(Moved, "the lease %s has been asked for since, by another visit", ref.ID)
	case w.x.Route.ByKey: // the answer names the lock
		reply(w, http.StatusOK, &l)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// askedRelease returns the values of a request to release, from its body or its query.
func askedRelease(x *Exchange, r *http.Request) (b wire.Release, err error) {
	if x.Route.ByKey {
		return decode[wire.Release](r)
	}
	keep, keepErr := queryMillis(r.URL, "keepMs")
	forbid, forbidErr := queryMillis(r.URL, "forbidMs")
	return wire.Release{Keep: millisOr(keep, 0), Forbid: forbid, Visit: r.URL.Query().Get("visit")}, cmp.Or(keepErr, forbidErr)
}

// breakLease ends the named lease by force.
func (s *Server) breakLease(w *answer, r *http.Request) error {
	b, err := decode[wire.Break](r)
	if err != nil {
		return err
	}
	name, err := lockName(&w.x, b.Key)
	if err != nil {
		return err
	}
	w.x.LeaseID = b.LeaseID
	if err := cmp.Or(check.ID(b.LeaseID), check.Text("reason", b.Reason, 1, check.MaxReason)); err != nil {
		return err
	}
	store, ok := driver.As[driver.Breaker](s.store)
	if !ok {
		return newProblem(Unsupported, "the store cannot end a lease by force")
	}
	e := event{verb: breaking, x: &w.x, ref: [1]driver.Ref{{Key: name, ID: b.LeaseID}}, reason: b.Reason}
	if err := s.ask(r, &e, func(ctx context.Context) { e.got, e.err = store.Break(ctx, name, b.LeaseID, b.Reason) }); err != nil {
		return err
	}
	if e.got.State == driver.Gone {
		return newProblem(NotHeld, "there is no lease %s", b.LeaseID)
	}
	l := leaseOf(&w.x, name, b.LeaseID, e.got)
	reply(w, http.StatusOK, &l)
	return nil
}
