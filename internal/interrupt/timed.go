package interrupt

import (
	"context"
	"math/bits"
	"sync"
	"time"
)

// A timed call ends on its own, for a library that does not always wait in the socket. A timer
// for each call would cost much, for an event that almost never happens. So calls that end at
// nearly the same time share a moment with one timer. A call has a channel of its own only if
// its context can be cancelled, and only when the library asks for it.

// moment is a time at which unanswered calls end.
type moment struct {
	conns *Conns
	at    int64         // ns of the monotonic clock
	over  chan struct{} // closed when it has come

	mu    sync.Mutex
	calls []*Call // with a channel of their own
}

// precision is the part of a call's time by which it may end late: 1/16 to 1/8.
const precision = 3

var origin = time.Now()

// moment returns the moment for calls that begin now and last up to timeout.
func (cs *Conns) moment(now time.Time, timeout time.Duration) *moment {
	start, timeout := int64(now.Sub(origin)), max(timeout, 0)
	grain := int64(1) << max(bits.Len64(uint64(timeout))-precision-1, 10)
	at := (start + int64(timeout)) | (grain - 1) + 1
	cs.timing.Lock()
	defer cs.timing.Unlock()
	m := cs.moments[at]
	if m == nil {
		m = &moment{conns: cs, at: at, over: make(chan struct{})}
		if cs.moments == nil {
			cs.moments = make(map[int64]*moment)
		}
		cs.moments[at] = m
		time.AfterFunc(time.Duration(at-start), m.come)
	}
	return m
}

// come ends the calls that are left.
func (m *moment) come() {
	m.conns.timing.Lock()
	delete(m.conns.moments, m.at)
	m.conns.timing.Unlock()
	close(m.over)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		c.close()
	}
}

// done returns the channel of a call, which is closed when the call has ended.
func (m *moment) done(c *Call) <-chan struct{} {
	ended := m.channel(c)
	if c.Err() != nil { // since before there was a channel
		m.end(c)
	}
	return ended
}

func (m *moment) channel(c *Call) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.ended == nil {
		c.ended = make(chan struct{})
		c.seat = len(m.calls)
		m.calls = append(m.calls, c)
	}
	return c.ended
}

// end closes the channel of a call, if it was made.
func (m *moment) end(c *Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.ended != nil {
		c.close()
	}
}

// remove forgets the channel of a call that has returned.
func (m *moment) remove(c *Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.ended == nil {
		return
	}
	last := len(m.calls) - 1
	m.calls[c.seat] = m.calls[last]
	m.calls[c.seat].seat = c.seat
	m.calls[last] = nil
	m.calls = m.calls[:last]
}

// BeginTimed is Begin for a library that does not always wait in the socket:
// the context itself ends after the timeout too, or up to an eighth of it later.
func (cs *Conns) BeginTimed(ctx context.Context, timeout time.Duration) *Call {
	c := &Call{Context: ctx, conns: cs}
	now := time.Now()
	c.deadline = cs.deadline(ctx, now, timeout)
	c.moment = cs.moment(now, c.deadline.Sub(now))
	cs.watch(c)
	return c
}

// close closes the call's own channel. The caller holds the moment's mu.
func (c *Call) close() {
	if !c.closed {
		c.closed = true
		close(c.ended)
	}
}

// Done implements [context.Context].
func (c *Call) Done() <-chan struct{} {
	switch {
	case c.moment == nil:
		return c.Context.Done()
	case c.Context.Done() == nil:
		return c.moment.over
	}
	return c.moment.done(c)
}

// Err implements [context.Context].
func (c *Call) Err() error {
	if err := c.Context.Err(); err != nil || c.moment == nil {
		return err
	}
	select {
	case <-c.moment.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
