package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

func leaseRoutes() []Route {
	return []Route{
		{
			Method: http.MethodPost, Path: "/v1/locks/{name}", Operation: "acquire",
			Summary: "Take a lock, or a place in its queue", Verb: Acquire,
			Body: wire.Acquire{}, Reply: wire.Lease{},
			Success: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted},
			Causes:  []*Cause{Held, Forced, Released, Mismatch, TooLarge, TooMany, Unsupported, Unavailable, Unknown},
			handle:  (*Server).acquire,
		},
		{
			Method: http.MethodPut, Path: "/v1/locks/{name}/leases/{id}", Operation: "renew",
			Summary: "Renew a lease, or keep a place in the queue", Verb: Acquire,
			Body: wire.Renew{}, Reply: wire.Lease{},
			Success: []int{http.StatusOK, http.StatusAccepted},
			Causes:  []*Cause{Gone, Forced, Released, TooLarge, Unavailable, Unknown},
			handle:  (*Server).renew,
		},
		{
			Method: http.MethodDelete, Path: "/v1/locks/{name}/leases/{id}", Operation: "release",
			Summary: "Release a lease, or leave the queue", Verb: Acquire,
			Query: []Parameter{
				{Name: "keepMs", Type: "integer", Description: "keep the lock closed for so long, for jobs that are shorter than the clocks of their hosts differ"},
				{Name: "forbidMs", Type: "integer", Description: "refuse the lease id for so long, so that a late repetition of its acquire takes nothing; 60000 unless given"},
			},
			Success: []int{http.StatusNoContent},
			Causes:  []*Cause{Gone, Forced, Unavailable, Unknown},
			handle:  (*Server).release,
		},
	}
}

// acquire takes a lock.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request) error {
	name, err := lockName(r)
	if err != nil {
		return err
	}
	var b wire.Acquire
	if err := decode(r, &b); err != nil {
		return err
	}
	b.LeaseID = cmp.Or(b.LeaseID, rand.Text())
	b.Owner = cmp.Or(b.Owner, caller(r))
	x := exchangeOf(r.Context())
	x.LeaseID = b.LeaseID
	req, err := s.request(name, &b)
	if err := first(err, checkID(b.LeaseID)); err != nil {
		return err
	}
	if req.Since.IsZero() {
		req.Since = x.Started
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.storeTimeout)
	defer cancel()
	got, err := s.store.Acquire(ctx, req)
	if err != nil {
		return err
	}
	l := wire.LeaseOf(name, req.ID, got)
	switch got.State {
	case driver.Granted:
		l.TTL = wire.MillisOf(req.TTL)
		reply(w, http.StatusCreated, &l)
		return nil
	case driver.Busy:
		return s.held(r, &l)
	}
	return lost(&l)
}

// caller names who asks, for people who look at a lock that nobody named.
func caller(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return cmp.Or(exchangeOf(r.Context()).Principal.Name(), host)
}

// held says that a lock was not granted. Who holds it is told to those who may
// read.
func (s *Server) held(r *http.Request, l *wire.Lease) *problem {
	p := newProblem(Held, "the lock %q is held by others", l.Key)
	p.Key, p.LeaseID, p.FreeIn, p.Clock = l.Key, l.LeaseID, l.FreeIn, l.Clock
	if may(r.Context(), Read, l.Key) {
		p.Holders = l.Holders
	}
	return p.after(max(l.FreeIn.Duration(), retryLater))
}

// lost says that a lease or ticket is not there any more, and why.
func lost(l *wire.Lease) *problem {
	p := newProblem(Gone, "the store does not have the lease %s of %q any more", l.LeaseID, l.Key)
	if l.Broken {
		p = newProblem(Forced, "the lease %s of %q was broken: %s", l.LeaseID, l.Key, l.Reason)
	}
	p.Key, p.LeaseID, p.Broken, p.Reason, p.Clock = l.Key, l.LeaseID, l.Broken, l.Reason, l.Clock
	return p
}

// leaseRef is the lease that the path names.
func leaseRef(r *http.Request) (driver.Ref, error) {
	name, err := lockName(r)
	x := exchangeOf(r.Context())
	x.LeaseID = x.vars["id"]
	return driver.Ref{Key: name, ID: x.LeaseID}, first(err, checkID(x.LeaseID))
}

// renew prolongs a lease.
func (s *Server) renew(w http.ResponseWriter, r *http.Request) error {
	ref, err := leaseRef(r)
	if err != nil {
		return err
	}
	var b wire.Renew
	if err := decode(r, &b); err != nil {
		return err
	}
	if ref.TTL, err = s.lifetime(b.TTL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.storeTimeout)
	defer cancel()
	var got driver.Reply
	s.store.Renew(ctx, []driver.Ref{ref}, func(_ int, r driver.Reply, e error) { got, err = r, e })
	if err != nil {
		return err
	}
	l := wire.LeaseOf(ref.Key, ref.ID, got)
	if got.State != driver.Granted {
		return lost(&l)
	}
	l.TTL = wire.MillisOf(ref.TTL)
	reply(w, http.StatusOK, &l)
	return nil
}

// forbidFor is how long the id of a released lease is refused: for longer than
// a request can be on its way.
const forbidFor = time.Minute

// release ends a lease, or leaves the queue.
func (s *Server) release(w http.ResponseWriter, r *http.Request) error {
	ref, err := leaseRef(r)
	if err != nil {
		return err
	}
	if ref.Keep, err = duration(r, "keepMs", 0, s.cfg.maxTTL); err != nil {
		return err
	}
	if ref.Forbid, err = duration(r, "forbidMs", forbidFor, s.cfg.maxTTL); err != nil {
		return err
	}
	// Who releases and vanishes has released.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.cfg.storeTimeout)
	defer cancel()
	got, err := s.store.Release(ctx, ref)
	if err != nil {
		return err
	}
	if got.State == driver.Gone {
		l := wire.LeaseOf(ref.Key, ref.ID, got)
		return lost(&l)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
