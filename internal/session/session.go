// Package session is the engine between a driver and its users: it repeats requests,
// waits in queues, renews leases and tickets, and undoes abandoned requests.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/clock"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Session is the connection of a process to a store. It is safe for concurrent use.
type Session struct {
	drv      driver.Driver
	verbs    driver.Driver // drv, or its wrapper for lock requests; see Through
	punctual punctuality   // of the driver
	listener *listener
	keeper   *keeper
	expiry   expiry
	epoch    clock.Epoch

	asking  limiter      // for lock requests
	undoing limiter      // for undoing abandoned requests
	recalls atomic.Int32 // changes being taken back; see maxRecalls
	outage  outage
	hints   atomic.Uint64
	lines   lines

	life context.Context // ends when the session is closed
	shut context.CancelFunc

	mu       sync.Mutex
	idle     *sync.Cond // signalled when busy falls to 0
	busy     int        // calls and background work under way
	closed   bool
	undoFor  time.Duration // the longest release timeout of an undo; see undo
	alert    alert
	waiters  map[string]*Waiter // by lease id; waiters with the same id form a list
	holds    map[string]*Hold   // by lease id; see nameOf
	sharedID bool               // two leases have used the same id
}

// New returns a session with a store. Close closes the driver. tell, which may be nil, is
// called when an outage of the store begins and when it ends.
func New(d driver.Driver, log *slog.Logger, tell func(Outage)) *Session {
	s := &Session{
		drv: d, verbs: d, punctual: punctualityOf(d), epoch: clock.NewEpoch(clock.Now()),
		waiters: make(map[string]*Waiter), holds: make(map[string]*Hold),
		asking: limiter{most: inFlight}, undoing: limiter{most: inFlight},
	}
	s.life, s.shut = context.WithCancel(context.Background())
	if tell == nil {
		tell = func(Outage) {}
	}
	s.outage.log, s.outage.tell = log, tell
	s.keeper = newKeeper(s.renew, clock.Now)
	s.expiry.init(s)
	s.idle = sync.NewCond(&s.mu)
	s.listener = newListener(d, log, s.hint)
	s.enroll()
	return s
}

// Through sends lock requests through d, a wrapper around the driver that records the
// requests of callers. It must be called before the first request. Batched renewals and
// undo requests belong to no single caller and bypass d.
func (s *Session) Through(d driver.Driver) { s.verbs = d }

// Listen subscribes to hints now, instead of when the first waiter comes.
func (s *Session) Listen() {
	if !s.IsClosing() {
		s.listener.start(s.Background)
	}
}

// Hears reports whether the store can deliver hints.
func (s *Session) Hears() bool { return s.listener.hears() }

// Now returns the time of the clock that leases use.
func (s *Session) Now() time.Time { return clock.Now() }

// instant converts t to a form of 8 bytes.
func (s *Session) instant(t time.Time) clock.Instant { return s.epoch.Instant(t) }

func (s *Session) time(i clock.Instant) time.Time { return s.epoch.Time(i) }

// Driver returns the driver, for calls that bypass the session.
func (s *Session) Driver() driver.Driver { return s.drv }

// Close ends the session and closes the driver. The error includes leases that could not
// be given back. Close may be called again.
func (s *Session) Close() error {
	ended, err := s.End()
	if !ended {
		return nil
	}
	return oneline.Join(err, s.drv.Close())
}

// closeWithin bounds how long End waits beyond the release timeouts of leases and undos: a
// driver, logger or observer may never return.
const closeWithin = 10 * time.Second

// End ends the session: waiters get ErrClosed, calls under way are cancelled, and leases
// end with ErrClosed and are given back, each within its release timeout. The error
// includes leases that could not be given back. When End returns true, the driver is still
// open, and no goroutine of the session runs, unless the error reports calls that have not
// returned. Later calls return false at once.
func (s *Session) End() (bool, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false, nil
	}
	s.closed = true
	s.shut()
	s.alert.stop()
	defer s.resign()
	holds := slices.Collect(maps.Values(s.holds))
	limit := s.undoFor
	s.mu.Unlock()

	for _, h := range holds {
		limit = max(limit, h.terms().ReleaseTimeout)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.end(holds, limit) }()
	late := time.NewTimer(limit + closeWithin)
	defer late.Stop()
	select {
	case err := <-ended:
		return true, err
	case <-late.C:
		return true, errors.New("calls of the driver, the logger or an observer have not returned")
	}
}

// end gives all leases back within limit, and returns when all work of the session ended.
func (s *Session) end(holds []*Hold, limit time.Duration) error {
	err := s.stopAll(holds, limit)
	s.mu.Lock()
	for s.busy > 0 {
		s.idle.Wait()
	}
	s.mu.Unlock()
	s.expiry.close()
	s.keeper.Close()
	s.listener.close()
	return err
}

// stoppers is how many leases a closing session gives back concurrently.
const stoppers = 64

// stopAll ends all leases at once and gives them back concurrently. They share one limit,
// so a store that does not answer costs it once. The error counts the leases that the
// store may keep until they expire, and contains the error of one of them.
func (s *Session) stopAll(holds []*Hold, limit time.Duration) error {
	holds = slices.DeleteFunc(holds, func(h *Hold) bool { return !h.endWith(ErrClosed, true) })
	end := s.Now().Add(limit)
	var next, left atomic.Int64
	var why atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(len(holds), stoppers) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(len(holds)); i = next.Add(1) {
				h := holds[i-1]
				err := h.events.GiveBack(ErrClosed, min(h.terms().ReleaseTimeout, end.Sub(s.Now())))
				if err != nil && !errors.Is(err, ErrLost) { // after a loss another client may have the lock
					left.Add(1)
					err = fmt.Errorf("lease of %q: %w", h.key, err)
					why.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if n := left.Load(); n > 0 {
		return fmt.Errorf("%d not given back, among them the %w", n, *why.Load())
	}
	return nil
}

// register adds a lease, unless the session is closed or has a lease of this key and id.
func (s *Session) register(h *Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.find(h.key, h.id) != nil:
		return errTwice
	}
	if s.holds[h.id] == nil {
		s.holds[h.id] = h
	} else {
		s.sharedID = true
		s.holds[s.nameOf(h.key, h.id)] = h
	}
	s.watchForBreaks()
	return nil
}

// forget drops a lease that has ended.
func (s *Session) forget(h *Hold) {
	s.keeper.Remove(&h.task)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, s.nameOf(h.key, h.id))
}

// nameOf returns a lease's name in holds: its id, or id and key if another key uses the
// same id. The caller holds mu.
func (s *Session) nameOf(key, id string) string {
	if h := s.holds[id]; h != nil && h.key != key || h == nil && s.sharedID {
		return id + " " + key
	}
	return id
}

// find returns the lease of a key and an id, or nil. The caller holds mu.
func (s *Session) find(key, id string) *Hold { return s.holds[s.nameOf(key, id)] }

// NotHeld returns an error if this session holds the lease.
func (s *Session) NotHeld(key, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(key, id) != nil {
		return errTwice
	}
	return nil
}

// Background runs f in a goroutine that Close waits for.
func (s *Session) Background(f func()) {
	s.Enter()
	go func() {
		defer s.Leave()
		f()
	}()
}

// Enter counts a call that Close waits for, until Leave.
func (s *Session) Enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
}

// enterUnlessEnded is Enter for follow-up work, which may start after the end.
func (s *Session) enterUnlessEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.busy == 0 {
		return false
	}
	s.busy++
	return true
}

// Leave ends the count of Enter or Begin.
func (s *Session) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left()
}

// left decrements busy. The caller holds mu.
func (s *Session) left() {
	if s.busy--; s.busy == 0 {
		s.idle.Broadcast()
	}
}

// Begin is Enter, unless the session is closed.
func (s *Session) Begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.busy++
	return nil
}

// Held returns the number of leases held.
func (s *Session) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holds)
}

// addWaiter registers a waiter for hints, unless the session is closed.
func (s *Session) addWaiter(w *Waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.busy++
	w.next = s.waiters[w.req.ID]
	s.waiters[w.req.ID] = w
	return nil
}

// dropWaiter removes a waiter from the delivery of hints.
func (s *Session) dropWaiter(w *Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.waiters[w.req.ID]; first != w {
		for first.next != w {
			first = first.next
		}
		first.next = w.next
	} else if w.next != nil {
		s.waiters[w.req.ID] = w.next
	} else {
		delete(s.waiters, w.req.ID)
	}
	w.next = nil
	s.left()
}

// Closing returns a channel that is closed when Close or End begins.
func (s *Session) Closing() <-chan struct{} { return s.life.Done() }

// IsClosing reports whether Close or End has begun.
func (s *Session) IsClosing() bool { return s.life.Err() != nil }

// sleep sleeps for d and returns true. It returns false early if ctx ends or the session
// is closed.
func (s *Session) sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-s.Closing():
	}
	return false
}

// Address returns where this session receives hints, or "" while it does not.
func (s *Session) Address() string { return s.listener.address() }

// hint passes a hint to the lease or the waiters that it concerns.
func (s *Session) hint(h driver.Hint) {
	if h.Kind != driver.HintBroken { // hints of breaks go to every address, so they do not prove that ours works
		s.hints.Add(1)
	} else if held := s.held(h.Key, h.ID); held != nil {
		held.broken(h.Reason)
		return
	}
	var one [1]*Waiter
	for _, w := range s.concerned(one[:0], &h) {
		w.hint(h)
	}
}

// held returns the lease with this key and id, or nil.
func (s *Session) held(key, id string) *Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(key, id)
}

// concerned appends the waiters that a hint is for: all waiters with its id, for any key;
// a resync is for all waiters.
func (s *Session) concerned(all []*Waiter, h *driver.Hint) []*Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Kind != driver.HintResync {
		return s.waiters[h.ID].appendTo(all)
	}
	for _, w := range s.waiters {
		all = w.appendTo(all)
	}
	return all
}
