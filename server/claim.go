package server

import (
	"context"

	"github.com/leasehold-go/leasehold/driver"
)

// claim is what the requests for one lease that are under way have in common.
// A client whose connection broke asks again by another one, perhaps before
// the first request has found out: what the first one then gives back must not
// be what the second one has been told that it has. Between replicas the store
// sees to that, by the address; here, the claim does.
type claim struct {
	visits int
	last   *visit        // that which came last
	undone chan struct{} // closed when the undoing under way has ended; nil for none
}

// visit is one request for a lease.
type visit struct {
	d       *desk
	of      leaseKey
	c       *claim
	address string        // that the lease or ticket has in the store
	passed  chan struct{} // closed when another request for the lease has come; nil if nobody waits for that
	holds   int           // the request itself, and its undoing later; guarded by d.mu
	first   claim         // the claim, if this request is the first
}

// visit begins v, a request for a lease, of which waits tells whether it wants to
// know when another one comes. It waits until nobody is undoing an earlier one.
func (d *desk) visit(ctx context.Context, v *visit, key, id string, waits bool) error {
	of := leaseKey{key, id}
	for {
		d.mu.Lock()
		c := d.claims[of]
		if c == nil {
			c = &v.first
			d.claims[of] = c
		}
		if c.undone == nil {
			v.d, v.of, v.c, v.holds = d, of, c, 1
			if waits {
				v.passed = make(chan struct{})
			}
			if c.last != nil && c.last.passed != nil {
				close(c.last.passed)
			}
			c.visits++
			c.last = v
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

// end ends the request.
func (v *visit) end() {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if v.holds--; v.holds > 0 {
		return
	}
	if v.c.last == v {
		v.c.last = nil
	}
	if v.c.visits--; v.c.visits == 0 {
		delete(v.d.claims, v.of)
	}
}

// undo gives back what the request took, for a client that has gone without
// having heard of it: at once, so that others do not wait for the end of a
// lease or ticket that nobody knows of. It does nothing if the client has asked
// again.
//
// Without an address of ours in the store it does nothing either, since nobody
// could tell whether the client has asked another replica. A ticket without an
// address soon ends by itself.
func (v *visit) undo() {
	v.d.mu.Lock()
	if v.c.last != v || v.address == "" {
		v.d.mu.Unlock()
		return
	}
	undone := make(chan struct{})
	v.c.undone = undone
	v.d.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), v.d.s.cfg.storeTimeout)
	defer cancel()
	_, err := v.d.s.store.Release(ctx, driver.Ref{Key: v.of.key, ID: v.of.id, Notify: v.address})
	if err != nil {
		v.d.s.cfg.log.Warn("leasehold: request of a client that has gone not undone", "key", v.of.key, "lease", v.of.id, "error", err)
	}
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	v.c.undone = nil
	close(undone)
}

// undoLater makes the visit outlast its request, until one of the functions is
// called: undo undoes the request, in a goroutine of its own.
func (v *visit) undoLater() (undo, keep func()) {
	v.d.mu.Lock()
	v.holds++
	v.d.mu.Unlock()
	return func() {
		if !v.d.start(func() { v.undo(); v.end() }) {
			v.end()
		}
	}, v.end
}
