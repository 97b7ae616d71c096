package roomdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/room"
)

// turns lets one update of a key at a time go to the table: several would only wait for
// each other there, each with a connection. Calls that arrive during an update are made
// together by the next one, in the order of their arrival. So the record of a long queue
// is not written once for each waiter.
type turns struct {
	mu      sync.Mutex
	waiting map[string][]*turn // of each key with an update under way
}

// turn is a call that waits for the update before it.
type turn struct {
	ctx  context.Context
	call call
	done chan struct{} // closed after the call was made
}

// inTurn makes a call when no other call of the same key is under way. After an error the
// call may still be in use: it continues without its caller.
func (d *Driver) inTurn(ctx context.Context, c call) error {
	key := c.state().key
	t := &turn{ctx: ctx, call: c, done: make(chan struct{})}
	if d.turns.join(key, t) {
		d.begin(key, []*turn{t})
	}
	select {
	case <-t.done:
		return c.state().err
	case <-ctx.Done():
	}
	if d.turns.leave(key, t) {
		return fmt.Errorf("%w: the calls before it took too long: %w", driver.ErrUnavailable, ctx.Err())
	}
	if soon(t.done) {
		if err := c.state().err; !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrUnavailable) {
			return err // or nil
		}
	}
	return fmt.Errorf("the caller left before the table answered: %w", ctx.Err())
}

// lastWord is how long a call waits for the table's answer after its context has ended. A
// table usually answers within it, and an answer is better than an unknown outcome.
const lastWord = 20 * time.Millisecond

// soon reports whether done is closed within lastWord.
func soon(done <-chan struct{}) bool {
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// join reports whether it is t's turn. Otherwise t waits.
func (s *turns) join(key string, t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, busy := s.waiting[key]
	if busy {
		waiting = append(waiting, t)
	}
	s.waiting[key] = waiting
	return !busy
}

// leave reports whether t was still waiting, and does so no longer.
func (s *turns) leave(key string, t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting[key], t)
	if i < 0 {
		return false
	}
	s.waiting[key] = slices.Delete(s.waiting[key], i, i+1)
	return true
}

// take removes the first waiting calls, as many as one update can serve.
func (s *turns) take(key string) []*turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiting[key]
	if len(waiting) == 0 {
		delete(s.waiting, key)
		return nil
	}
	n := slices.IndexFunc(waiting, func(t *turn) bool { return t.call.state().once != "" })
	if n < 0 {
		n = len(waiting)
	}
	n = max(n, 1) // an update reads the note of one id
	s.waiting[key] = waiting[n:]
	return waiting[:n:n]
}

// begin makes calls about one key, and then the calls that arrived during these, also if a fake
// table ended its goroutine.
func (d *Driver) begin(key string, turns []*turn) {
	go func() {
		defer func() {
			if next := d.turns.take(key); next != nil {
				d.begin(key, next)
			}
		}()
		d.saveAll(turns)
	}()
}

// saveAll makes calls about one key by one update, which ends when all callers have left.
// It drops calls that have waited until the table was closed.
func (d *Driver) saveAll(turns []*turn) {
	if d.closed.Load() {
		for _, t := range turns {
			t.call.state().err = driver.ErrClosed
			close(t.done)
		}
		return
	}
	if len(turns) == 1 {
		defer close(turns[0].done)
		_ = d.save(turns[0].ctx, turns[0].call)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(spokesman(turns).ctx))
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(turns)))
	for _, t := range turns {
		defer close(t.done)
		defer context.AfterFunc(t.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	all := &group{visit: visit{key: turns[0].call.state().key}}
	for _, t := range turns {
		all.calls, all.mark = append(all.calls, t.call), cmp.Or(all.mark, t.call.state().mark)
	}
	if err := d.save(ctx, all); err != nil {
		for _, c := range all.calls {
			c.state().err = err
		}
	}
}

// spokesman returns the call whose context provides the values for all: a release, if there
// is one, which a table may serve first.
func spokesman(turns []*turn) *turn {
	for _, t := range turns {
		if _, ok := t.call.(*releasing); ok {
			return t
		}
	}
	return turns[0]
}

// group is several calls about one key.
type group struct {
	visit
	calls []call
}

// Step runs the steps of all calls in order. A refused step leaves the record unchanged.
func (g *group) Step(r *room.Record, now int64) (wakes []room.Wake, _ error) {
	for _, c := range g.calls {
		c.state().shut = g.shut
		if walk(c, r, now) == nil {
			wakes = append(wakes, c.state().wakes...)
		}
		g.enters = g.enters || c.state().enters
	}
	return wakes, nil
}

func (g *group) settle(now time.Time, guess, token int64) {
	for _, c := range g.calls {
		c.settle(now, guess, token)
	}
}
