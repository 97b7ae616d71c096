package server

import (
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// desk looks after the clients that wait here. To the store it is one process
// that waits for many: it has one subscription, and keeps all tickets alive in
// batches.
type desk struct {
	s        *Server
	listener *session.Listener
	keeper   *session.Keeper
	lone     *lone
	name     string         // of the service, in its visits' names
	named    atomic.Uint64  // visits
	work     sync.WaitGroup // of the desk's goroutines
	opened   time.Time

	mu      sync.Mutex
	closed  bool
	form    string               // of addresses, once it is known
	waiters map[string][]*waiter // by lease id, which only hints use alone
	lines   session.Lines[*waiter]
	claims  map[claimKey]*claim
}

// leaseKey is a lease: ids are known in their own room only.
type leaseKey struct{ key, id string }

func newDesk(s *Server) *desk {
	d := &desk{
		s: s, keeper: session.NewKeeper(s.store.Renew, clock.Now), lone: newLone(), name: rand.Text()[:10],
		waiters: make(map[string][]*waiter), claims: make(map[claimKey]*claim),
	}
	d.listener = session.NewListener(s.store, s.cfg.log, d.hint)
	return d
}

// open starts to listen for hints.
func (d *desk) open() {
	d.opened = time.Now()
	d.listener.Open(func(open func()) { d.start(open) })
}

// close ends what the desk has started, after the last request.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.listener.Close()
	d.work.Wait()
	d.keeper.Close()
}

// start runs f in a goroutine that close waits for, unless it has been called.
func (d *desk) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}

// address is where this service hears hints; empty while it does not.
func (d *desk) address() string { return d.listener.Address() }

// hears reports whether the desk listens for hints. A store that cannot deliver them
// is given up after a while: who waits then asks.
func (d *desk) hears() bool {
	return !d.listener.Hears() || d.address() != "" || time.Since(d.opened) > d.s.cfg.storeTimeout
}

// hint passes a wake-up on to whom it concerns.
func (d *desk) hint(h driver.Hint) {
	for _, w := range d.concerned(h) {
		w.hint(h)
	}
}

func (d *desk) concerned(h driver.Hint) (all []*waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.Kind != driver.HintResync {
		return slices.Clone(d.waiters[h.ID])
	}
	for _, some := range d.waiters {
		all = append(all, some...)
	}
	return all
}

// join puts w at the end of the line of those who wait here for its lock.
func (d *desk) join(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters[w.req.ID] = append(d.waiters[w.req.ID], w)
	w.place = d.lines.Join(w.req.Key, w)
}

// part takes w out of its line, and has the next ask soon if w was the first.
func (d *desk) part(w *waiter) {
	d.keeper.Remove(&w.task)
	d.mu.Lock()
	defer d.mu.Unlock()
	id := w.req.ID
	if d.waiters[id] = slices.DeleteFunc(d.waiters[id], func(o *waiter) bool { return o == w }); len(d.waiters[id]) == 0 {
		delete(d.waiters, id)
	}
	if next, ok := d.lines.Leave(w.req.Key, w.place); ok {
		d.keeper.Hurry(&next.task, clock.Now().Add(timing.WatchEvery))
	}
}

// leads reports whether w is the first of its line: if all who stand before it
// in the store's queue have died, nobody else tells it.
func (d *desk) leads(w *waiter) bool { return d.lines.First(w.req.Key, w.place) }
