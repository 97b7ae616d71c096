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
	renewer string        // is no name of a visit

	mu  sync.Mutex
	all map[visitKey]*visit
}

// leaseKey is a lease: ids are known in their own room only.
type leaseKey struct{ key, id string }

// visitKey is a lease, and the visit by which a client asks for it, which may have
// no name.
type visitKey struct {
	leaseKey
	client string
}

// visit is what the requests for one lease that are under way have in common.
// A client whose connection broke asks again by another one, perhaps before the
// first request has found out: what one request gives back must not be what
// another has told its client that it has. So only the last of them gives
// anything back, and only what nobody was told. To the store they are one visit,
// and what other visits have asked for too, here or elsewhere, is no longer its
// own to give back.
type visit struct {
	of        visitKey
	name      string        // in the store
	requests  int           // under way, and those whose answer may turn out not to be read
	life      time.Duration // of what they ask for
	told      int           // those whose clients were told that they have the lease, or a place
	abandoned bool          // a client has gone that had asked
	kept      time.Duration // for how long it said that its place in the queue is to be kept
	notify    string        // where it hears hints of that place
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

// newName names a visit of a client, which may have named its visit too. Nobody
// else uses that name, not even the client's next visit.
func (f *inflight) newName(client string) string {
	name := make([]byte, 0, 64)
	if client != "" {
		name = append(append(name, client...), '/')
	}
	return string(strconv.AppendUint(append(append(name, f.name...), '.'), f.named.Add(1), 36))
}

// renewerOf names whoever renews for a client, which may have named its visit. Nothing
// is undone by that name: what a renewal has told stays true, whatever becomes of the
// requests before it.
func (f *inflight) renewerOf(client string) string {
	if client == "" {
		return f.renewer
	}
	return client + "/" + f.renewer
}

// begin begins p, the part of a request for a lease, which is given the name of its
// visit. It waits until nobody is undoing an earlier one.
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

// tell notes that the client is about to be told what the store said.
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

// abandon notes that the client has gone, and what was asked of the store is of no
// use to it, except for a place that is to be kept for a time, of which it hears hints at
// an address.
func (p *share) abandon(kept time.Duration, notify string) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.v.abandoned, p.v.kept, p.v.notify = true, max(p.v.kept, kept), notify
}

// end ends the request. The last one gives back what was abandoned: at once, so
// that others do not wait for the end of a lease or ticket that nobody knows of.
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
	// Others need not wait longer than for the first try, since what they ask for is
	// not this visit's any more.
	p.in.session.GiveBack(context.Background(), p.in.terms, &session.Abandoned{
		Ref:  driver.Ref{Key: v.of.key, ID: v.of.id, TTL: v.life, Visit: v.name, HintAddress: v.notify},
		Life: v.life, Keep: v.kept, Tried: p.retired,
	})
}

// retire closes the visit, so that its last request, which this is, can give back what
// it has: a request that comes later waits until done is called, and begins a visit
// of its own. It reports false, and does nothing, if others are under way.
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

// forget has the next request begin a visit of its own. The caller holds mu.
func (f *inflight) forget(v *visit) {
	if f.all[v.of] == v {
		delete(f.all, v.of)
	}
}

// doubt makes the part outlast its request, whose client may not have read what
// it was told, until one of the functions is called.
func (p *share) doubt() (unread, read func()) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.v.requests++
	return func() {
		p.in.mu.Lock()
		p.v.told--
		p.v.abandoned = true
		p.in.mu.Unlock()
		p.end()
	}, p.end
}

// contention remembers of each lock whether nobody but its holder was about when it
// was last acquired or waited for: a release is told so, and costs the store
// less then ([driver.Ref.Uncontended]). A request knows of no other, and a lock may be
// in use by way of another replica, so this is a guess. A wrong one costs a call
// of the store more. Locks share places.
type contention struct {
	seed   maphash.Seed
	places [1024]atomic.Bool
}

func newContention() *contention { return &contention{seed: maphash.MakeSeed()} }

func (c *contention) of(key string) *atomic.Bool {
	return &c.places[maphash.String(c.seed, key)%uint64(len(c.places))]
}

// hear takes note of the answer to an acquire.
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
