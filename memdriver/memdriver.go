// Package memdriver keeps locks in the memory of one process. It is the
// executable specification of a store, and what tests use: the rule of package
// internal/room under a mutex, with hints delivered by function calls.
//
// Expiry follows the process's clock, so that a lease in a testing/synctest
// bubble ends in virtual time.
package memdriver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// Store is a set of rooms, as one process sees it. Clients that share a Store
// exclude each other, and so do those whose Stores are joined.
type Store struct {
	*house
	closed bool // guarded by house.mu
}

// house is what joined stores have in common.
type house struct {
	epoch time.Time // the store's clock is monotonic from here

	mu       sync.Mutex
	rooms    map[string]*room.Record
	subs     map[string]*subscription
	nsub     int
	sweeping bool  // a timer will call sweep
	mark     int64 // µs; since when guarded requests are served, 0 without a mark
}

var (
	_ driver.Driver    = (*Store)(nil)
	_ driver.Watcher   = (*Store)(nil)
	_ driver.Inspector = (*Store)(nil)
	_ driver.Breaker   = (*Store)(nil)
	_ driver.Marker    = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{house: &house{
		epoch: time.Now(),
		rooms: make(map[string]*room.Record),
		subs:  make(map[string]*subscription),
	}}
}

// Join returns another driver on the same rooms, the way another process would
// have one. Each is closed by itself.
func (s *Store) Join() *Store { return &Store{house: s.house} }

// now is the wall clock at the store's birth plus monotonic time since: it
// never steps.
func (h *house) now() int64 { return h.epoch.UnixMicro() + time.Since(h.epoch).Microseconds() }

// Acquire implements [driver.Driver].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (reply driver.Reply, err error) {
	e := s.do(ctx, req.Key, func(r *room.Record, now int64) (wakes []room.Wake) {
		req.Guard = req.Guard && (s.mark == 0 || now < s.mark)
		reply, wakes, err = room.Acquire(r, req, now)
		return wakes
	})
	if e != nil {
		return driver.Reply{}, e
	}
	return reply, err
}

// Renew implements [driver.Driver].
func (s *Store) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i, ref := range refs {
		var reply driver.Reply
		err := s.do(ctx, ref.Key, func(r *room.Record, now int64) (wakes []room.Wake) {
			reply, wakes = room.Renew(r, ref, now)
			return wakes
		})
		each(i, reply, err)
	}
}

// Release implements [driver.Driver].
func (s *Store) Release(ctx context.Context, ref driver.Ref) (reply driver.Reply, err error) {
	err = s.do(ctx, ref.Key, func(r *room.Record, now int64) (wakes []room.Wake) {
		reply, wakes = room.Release(r, ref, now)
		return wakes
	})
	return reply, err
}

// Break implements [driver.Breaker].
func (s *Store) Break(ctx context.Context, key, id, reason string) (reply driver.Reply, err error) {
	err = s.do(ctx, key, func(r *room.Record, now int64) (wakes []room.Wake) {
		reply, wakes = room.Break(r, id, reason, now)
		return wakes
	})
	return reply, err
}

// Inspect implements [driver.Inspector].
func (s *Store) Inspect(ctx context.Context, key string) (snap driver.Snapshot, err error) {
	err = s.do(ctx, key, func(r *room.Record, now int64) []room.Wake {
		snap = room.Look(r, key, now)
		return nil
	})
	return snap, err
}

// Marked implements [driver.Marker].
func (s *Store) Marked(ctx context.Context) (quarantine time.Duration, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, false, err
	}
	left := time.Duration(s.mark-s.now()) * time.Microsecond
	return max(left, 0), s.mark != 0, nil
}

// Mark implements [driver.Marker].
func (s *Store) Mark(ctx context.Context, quarantine time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	if s.mark == 0 {
		s.mark = s.now() + quarantine.Microseconds()
	}
	return nil
}

// page is how many keys List returns at a time.
const page = 256

// List implements [driver.Inspector]; keys come in lexical order, with those
// of rooms that are empty but kept closed.
func (s *Store) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, "", err
	}
	now := s.now()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.rooms)) {
		if key <= cursor || !strings.HasPrefix(key, prefix) || !inUse(s.rooms[key], now) {
			continue
		}
		if len(keys) == page {
			return keys, keys[page-1], nil
		}
		keys = append(keys, key)
	}
	return keys, "", nil
}

func inUse(r *room.Record, now int64) bool {
	snap := room.Look(r, "", now)
	return len(snap.Holders) > 0 || len(snap.Waiters) > 0 || snap.Closed > 0
}

// Close ends the store's subscriptions and makes every later call fail with
// [driver.ErrClosed]. Stores that were joined, and all leases, live on.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, sub := range s.subs {
		if sub.store == s {
			sub.end()
		}
	}
	return nil
}

// usable is what every call asks first. The caller holds mu.
func (s *Store) usable(ctx context.Context) error {
	if s.closed {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nil
}

// do runs step on the room of key and delivers the hints after the step.
func (s *Store) do(ctx context.Context, key string, step func(*room.Record, int64) []room.Wake) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	now := s.now()
	r := s.rooms[key]
	if r == nil {
		r = new(room.Record)
		s.rooms[key] = r
	}
	wakes := step(r, now)
	if r.Token == 0 && r.Idle(now) {
		delete(s.rooms, key)
	}
	s.deliver(wakes)
	s.sweepLater()
	return nil
}

// memory is how long the token of an idle room is remembered. A forgotten
// token is followed by a greater one, since the clock never steps.
const memory = time.Minute

// sweepLater sees to it that rooms are forgotten although nobody calls. The
// caller holds mu.
func (h *house) sweepLater() {
	if h.sweeping || len(h.rooms) == 0 {
		return
	}
	h.sweeping = true
	time.AfterFunc(memory, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sweeping = false
		h.sweep(h.now())
		h.sweepLater()
	})
}

// sweep forgets the rooms that have been idle for long.
func (h *house) sweep(now int64) {
	for key, r := range h.rooms {
		// The token was a reading of the clock when it was minted, so its
		// value tells how long ago that was at most.
		if ms := now / 1000; r.Token < now-memory.Microseconds() && r.Until() <= ms {
			delete(h.rooms, key)
		}
	}
	if len(h.rooms) == 0 {
		h.rooms = make(map[string]*room.Record) // a map does not shrink
	}
}
