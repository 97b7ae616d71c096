package server

import (
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/keeper"
	"github.com/leasehold-go/leasehold/internal/ticket"
)

// desk looks after the clients that wait here. To the store it is one process
// that waits for many: it has one subscription, and keeps all tickets alive in
// batches.
type desk struct {
	s       *Server
	watcher driver.Watcher // nil if the store has none
	keeper  *keeper.Keeper
	lone    *lone
	work    sync.WaitGroup // of the desk's goroutines

	mu      sync.Mutex
	closed  bool
	sub     driver.Subscription
	form    string               // of addresses, once it is known
	waiters map[string][]*waiter // by lease id, which only hints use alone
	lines   ticket.Lines[*waiter]
	claims  map[leaseKey]*claim
}

// leaseKey is a lease: ids are known in their own room only.
type leaseKey struct{ key, id string }

func newDesk(s *Server) *desk {
	d := &desk{
		s: s, keeper: keeper.New(s.store.Renew, time.Now), lone: newLone(),
		waiters: make(map[string][]*waiter), claims: make(map[leaseKey]*claim),
	}
	d.watcher, _ = s.store.(driver.Watcher)
	return d
}

// open starts to listen for hints. Who waits before it is listening gets the
// lock by asking.
func (d *desk) open() {
	if d.watcher == nil {
		return
	}
	d.start(func() {
		sub, err := d.watcher.Watch(d.hint)
		if err != nil {
			d.s.cfg.log.Warn("leasehold: no wake-ups, waiting by asking", "error", err)
			return
		}
		d.mu.Lock()
		closed := d.closed
		d.sub = sub
		d.mu.Unlock()
		if closed {
			_ = sub.Close() // its connection is of no more use
			return
		}
		d.hint(driver.Hint{Kind: driver.HintResync})
	})
}

// close ends what the desk has started, after the last request.
func (d *desk) close() {
	d.mu.Lock()
	d.closed = true
	sub := d.sub
	d.mu.Unlock()
	if sub != nil {
		_ = sub.Close()
	}
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
func (d *desk) address() string {
	d.mu.Lock()
	sub := d.sub
	d.mu.Unlock()
	if sub == nil {
		return ""
	}
	return sub.Address()
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
		d.keeper.Hurry(&next.task, time.Now().Add(ticket.WatchEvery))
	}
}

// leads reports whether w is the first of its line: if all who stand before it
// in the store's queue have died, nobody else tells it.
func (d *desk) leads(w *waiter) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines.First(w.req.Key, w.place)
}
