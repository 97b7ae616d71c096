package server

import (
	"context"
	"crypto/rand"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/session"
)

// inflight are the requests for leases that are under way.
type inflight struct {
	session *session.Session
	terms   *session.Terms
	name    string        // of the service, in its visits' names
	named   atomic.Uint64 // visits
	renewer string        // differs from the names of all visits

	mu  sync.Mutex
	all map[visitKey]*visit
}

// leaseKey identifies a lease: ids are unique per lock only.
type leaseKey struct{ key, id string }

// visitKey is a lease, and the client's name of its visit, which may be empty.
type visitKey struct {
	leaseKey
	client string
}

// visit is the common state of the requests for one lease that are under way. A client whose
// connection broke asks again by another connection, perhaps before the first request has noticed
// that. One request must not give back a lease that another has reported to its client. So only
// the last request of a visit gives the lease back, and only if none was reported. To the store
// the requests are one visit. A visit does not give back a lease that another visit, here or at
// another replica, has asked for too.
type visit struct {
	of        visitKey
	name      string        // in the store
	requests  int           // under way, or with an answer that may turn out not to be read
	life      time.Duration // the longest TTL that they ask for
	told      int           // requests that have answered with the lease or a place
	abandoned bool          // the client of a request has gone
	kept      time.Duration // for how long that client keeps its place in the queue
	notify    string        // the address for hints of that place
	undone    chan struct{} // closed when the undoing under way has ended; nil for none
}

// share is the part of one request in a visit.
type share struct {
	in    *inflight
	v     *visit
	first visit // the visit, if this request is the first
}

func newInflight(s *session.Session, t *session.Terms) *inflight {
	name := rand.Text()[:10]
	return &inflight{session: s, terms: t, name: name, renewer: name + ".0", all: make(map[visitKey]*visit)}
}

// newName returns a unique name for a visit. It begins with the client's own name of the visit,
// if there is one.
func (f *inflight) newName(client string) string {
	name := make([]byte, 0, 64)
	if client != "" {
		name = append(append(name, client...), '/')
	}
	return string(strconv.AppendUint(append(append(name, f.name...), '.'), f.named.Add(1), 36))
}

// renewerOf returns the visit of a renewal, for a client that may have named its visit. No
// request gives leases back by this name, so that a renewed lease stays, even if earlier
// requests of the client are undone.
func (f *inflight) renewerOf(client string) string {
	if client == "" {
		return f.renewer
	}
	return client + "/" + f.renewer
}

// begin adds a request to the visit of its lease, and sets the visit's name in it. It waits while
// an earlier visit is being undone.
func (f *inflight) begin(ctx context.Context, p *share, req *driver.Request) error {
	of := visitKey{leaseKey{req.Key, req.ID}, req.Visit}
	for {
		f.mu.Lock()
		v := f.all[of]
		if v == nil {
			v = &p.first
			v.of, v.name = of, f.newName(of.client)
			f.all[of] = v
		}
		if v.undone == nil {
			p.in, p.v, req.Visit = f, v, v.name
			v.requests, v.life = v.requests+1, max(v.life, req.TTL)
			f.mu.Unlock()
			return nil
		}
		undone := v.undone
		f.mu.Unlock()
		select {
		case <-undone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell notes that the client is about to receive the store's answer.
func (p *share) tell() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.v.told++
}

// alone reports whether no other request of the visit is under way.
func (p *share) alone() bool {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return p.v.requests == 1
}

// abandon notes that the client has gone, and does not need the lease or place. If kept is not 0
// its place is kept for that time, with hints to the address notify.
func (p *share) abandon(kept time.Duration, notify string) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.v.abandoned, p.v.kept, p.v.notify = true, max(p.v.kept, kept), notify
}

// end ends the request. The last request of a visit gives an abandoned lease or place back at
// once, so that waiters do not wait until it expires.
func (p *share) end() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	v := p.v
	if v.requests--; v.requests > 0 {
		return
	}
	if !v.abandoned || v.told > 0 {
		p.in.forget(v)
		return
	}
	v.undone = make(chan struct{})
	// Later requests wait for the first try only. If it fails, the store still does not undo their
	// leases, which belong to another visit.
	p.in.session.GiveBack(context.Background(), p.in.terms, &session.Abandoned{
		Ref:  driver.Ref{Key: v.of.key, ID: v.of.id, TTL: v.life, Visit: v.name, HintAddress: v.notify},
		Life: v.life, Keep: v.kept, Tried: p.retired,
	})
}

// retire closes the visit if this is its last request, which can then give back the lease or
// place: a later request waits until done is called, and begins another visit. It reports false
// if other requests are under way.
func (p *share) retire() (done func(), last bool) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if p.v.requests > 1 {
		return nil, false
	}
	p.v.undone = make(chan struct{})
	return p.retired, true
}

func (p *share) retired() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	close(p.v.undone)
	p.in.forget(p.v)
}

// forget removes the visit, so that the next request begins another one. The caller holds mu.
func (f *inflight) forget(v *visit) {
	if f.all[v.of] == v {
		delete(f.all, v.of)
	}
}

// doubt notes that the client is about to receive an answer, and keeps the share after the end of
// its request, until the caller reports whether the client has read it.
func (p *share) doubt() (settled func(read bool)) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.v.requests, p.v.told = p.v.requests+1, p.v.told+1
	return func(read bool) {
		if !read {
			p.in.mu.Lock()
			p.v.told--
			p.v.abandoned = true
			p.in.mu.Unlock()
		}
		p.end()
	}
}

// contention stores for each lock whether it had no other holder and no waiter at the last
// acquire. A release passes that to the store, and then costs less ([driver.Ref.Uncontended]).
// It is a guess, since another replica may have served the lock since; a wrong guess costs one
// more call of the store. Locks with the same hash share an entry.
type contention struct {
	seed   maphash.Seed
	places [1024]atomic.Bool
}

func (c *contention) of(key string) *atomic.Bool {
	return &c.places[maphash.String(c.seed, key)%uint64(len(c.places))]
}

// hear stores the answer to an acquire.
func (c *contention) hear(key string, got *driver.Reply) {
	switch got.State {
	case driver.Granted, driver.Queued, driver.Busy:
		if place := c.of(key); place.Load() != got.Uncontended {
			place.Store(got.Uncontended)
		}
	}
}

// isAbsent reports whether a lock is likely to be uncontended.
func (c *contention) isAbsent(key string) bool { return c.of(key).Load() }
