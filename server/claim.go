package server

import (
	"context"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// claim is what the requests for one lease that are under way have in common.
// A client whose connection broke asks again by another one, perhaps before the
// first request has found out: what one request gives back must not be what
// another has told its client that it has. So only the last of them gives
// anything back, and only what nobody was told. To the store they are one visit,
// and what other claims have asked for too, here or elsewhere, is no longer its
// own to give back.
type claim struct {
	of        claimKey
	name      string        // of the visit in the store
	visits    int           // requests under way, and those whose answer may turn out not to be read
	life      time.Duration // of what they ask for
	told      int           // those whose clients were told that they have the lease, or a place
	abandoned bool          // a client has gone that had asked
	kept      time.Duration // for how long it said that its place in the queue is to be kept
	undone    chan struct{} // closed when the undoing under way has ended; nil for none
}

// claimKey is a lease, and the visit by which a client asks for it, which may have
// no name.
type claimKey struct {
	leaseKey
	client string
}

// visit is one request for a lease.
type visit struct {
	d     *desk
	c     *claim
	first claim // the claim, if this request is the first
}

// newVisit names a claim of a client, which may have named its visit too. Nobody
// else uses that name, not even the client's next claim.
func (d *desk) newVisit(client string) string {
	name := make([]byte, 0, 64)
	if client != "" {
		name = append(append(name, client...), '/')
	}
	return string(strconv.AppendUint(append(append(name, d.name...), '.'), d.named.Add(1), 36))
}

// visit begins v, a request for a lease, which is given the name of its claim. It
// waits until nobody is undoing an earlier one.
func (d *desk) visit(ctx context.Context, v *visit, req *driver.Request) error {
	of := claimKey{leaseKey{req.Key, req.ID}, req.Visit}
	for {
		d.mu.Lock()
		c := d.claims[of]
		if c == nil {
			c = &v.first
			c.of, c.name = of, d.newVisit(of.client)
			d.claims[of] = c
		}
		if c.undone == nil {
			v.d, v.c, req.Visit = d, c, c.name
			c.visits, c.life = c.visits+1, max(c.life, req.TTL)
			d.mu.Unlock()
			return nil
		}
		undone := c.undone
		d.mu.Unlock()
		select {
		case <-undone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell notes that the client is about to be told what the store said.
func (v *visit) tell() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	v.c.told++
}

// alone reports whether no other request of the claim is under way.
func (v *visit) alone() bool {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	return v.c.visits == 1
}

// abandon notes that the client has gone, and what was asked of the store is of no
// use to it, except for a place that is to be kept for a time.
func (v *visit) abandon(kept time.Duration) {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	v.c.abandoned, v.c.kept = true, max(v.c.kept, kept)
}

// end ends the request. The last one gives back what was abandoned: at once, so
// that others do not wait for the end of a lease or ticket that nobody knows of.
func (v *visit) end() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	c := v.c
	if c.visits--; c.visits > 0 {
		return
	}
	if c.abandoned && c.told == 0 && !v.d.closed {
		c.undone = make(chan struct{})
		v.d.work.Go(v.undo)
		return
	}
	v.d.forget(c)
}

// retire closes the claim, so that its last request, which v is, can give back what
// it has: a request that comes later waits until done is called, and begins a claim
// of its own. It reports false, and does nothing, if others are under way.
func (v *visit) retire() (done func(), last bool) {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if v.c.visits > 1 {
		return nil, false
	}
	v.c.undone = make(chan struct{})
	return v.retired, true
}

func (v *visit) retired() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	close(v.c.undone)
	v.d.forget(v.c)
}

// forget has the next request begin a claim of its own. The caller holds mu.
func (d *desk) forget(c *claim) {
	if d.claims[c.of] == c {
		delete(d.claims, c.of)
	}
}

// undo gives back what was abandoned, until the store has answered or what may be
// there is over by itself: a store that was away comes back with what it was last
// asked for. Others need not wait for that after the first try, since what they ask
// for is not this claim's any more.
func (v *visit) undo() {
	until := time.Now().Add(v.c.life)
	err := v.giveBack()
	v.retired()
	for attempt := 1; err != nil && !timing.Final(err) && v.d.s.rest(timing.UndoIn(attempt)) && time.Now().Before(until); attempt++ {
		err = v.giveBack()
	}
	if err != nil {
		v.d.s.cfg.log.Warn("leasehold: request of a client that has gone not undone", "key", v.c.of.key, "lease", v.c.of.id, "error", err)
	}
}

// giveBack tries to undo once. A place that is to be kept is not given back.
func (v *visit) giveBack() error {
	ctx, cancel := context.WithTimeout(context.Background(), v.d.s.cfg.storeTimeout)
	defer cancel()
	if v.c.kept > 0 {
		one := renewing{ref: [1]driver.Ref{{Key: v.c.of.key, ID: v.c.of.id, TTL: v.c.life, TicketTTL: v.c.kept}}}
		v.d.s.store.Renew(ctx, one.ref[:], one.answer)
		if one.err != nil || one.got.State == driver.Queued {
			return one.err
		}
	}
	_, err := v.d.s.store.Release(ctx, driver.Ref{Key: v.c.of.key, ID: v.c.of.id, Visit: v.c.name})
	return err
}

// rest pauses, and reports whether the service goes on after it.
func (s *Server) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.serving.Done():
		return false
	}
}

// doubt makes the visit outlast its request, whose client may not have read what
// it was told, until one of the functions is called.
func (v *visit) doubt() (unread, read func()) {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	v.c.visits++
	return func() {
		v.d.mu.Lock()
		v.c.told--
		v.c.abandoned = true
		v.d.mu.Unlock()
		v.end()
	}, v.end
}
