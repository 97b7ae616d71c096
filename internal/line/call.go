package line

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/internal/session"
)

// Call is one call that waits in a line.
type Call struct {
	all     *Lines
	request Request
	ctx     context.Context // for requests to the store
	began   time.Time
	woken   chan struct{} // holds one token

	// These are guarded by the mutex of all.
	line     *line
	place    *list.Element
	number   int  // calls with smaller numbers are before this one
	waits    bool // at position, behind the lease of owner
	position int
	owner    string
	turn     *Turn // with grant: the call has the lease
	grant    session.Grant
	err      error // the call has failed
}

// Join adds a call to the line of its request. ctx carries values for requests to the store;
// its end does not end the wait.
func (l *Lines) Join(ctx context.Context, r Request) *Call {
	c := &Call{all: l, request: r, ctx: ctx, began: l.session.Now(), woken: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(c, (*list.List).PushBack)
	return c
}

// Wait waits until the call has the lease, and calls granted with it, which returns the
// lease's hold. Wait calls queued at most once, when the call has to wait.
//
// If ctx ends first, or the client closes, the call leaves the line, and the error is a
// [*session.Unserved], or matches session.ErrUnknown if the store has not answered. Other
// errors come from the store and from granted. A lease that is not used goes to the next
// call, also if one of the functions panics.
func (c *Call) Wait(ctx context.Context, queued func(position int, owner string), granted func(*Turn, session.Grant) (*session.Hold, error)) error {
	ended := false
	defer func() {
		if !ended {
			_ = c.leave(errors.New("panic"))
		}
	}()
	err := c.await(ctx, queued, granted)
	ended = true
	return err
}

func (c *Call) await(ctx context.Context, queued func(position int, owner string), granted func(*Turn, session.Grant) (*session.Hold, error)) error {
	reported := false
	for {
		switch t, waits, err := c.look(); {
		case err != nil:
			return err
		case t != nil:
			return c.take(ctx, t, granted)
		case waits && !reported:
			reported = true
			queued(c.position, c.owner)
		}
		select {
		case <-c.woken:
		case <-ctx.Done():
			return c.leave(session.CauseOf(ctx))
		case <-c.all.session.Closing():
			return c.leave(session.ErrClosed)
		}
	}
}

// look returns the state of the call: the turn of its lease, whether it has to wait, or its
// error. A call that lost its lease before it could take it returns to the front.
func (c *Call) look() (t *Turn, waits bool, err error) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.turn != nil && c.turn.over {
		c.turn = nil
		c.all.put(c, (*list.List).PushFront)
	}
	return c.turn, c.waits, c.err
}

// take makes a hold of the lease that the call was given.
func (c *Call) take(ctx context.Context, t *Turn, granted func(*Turn, session.Grant) (*session.Hold, error)) error {
	if cause := session.CauseOf(ctx); cause != nil {
		return c.leave(cause)
	}
	h, err := granted(t, c.grant)
	if err != nil {
		t.refuse(c.grant)
		return err
	}
	t.begun(h)
	return nil
}

// queued reports to a call that it has to wait, once.
func (c *Call) queued(position int, owner string) {
	if !c.waits {
		c.waits, c.position, c.owner = true, position, owner
		c.wake()
	}
}

func (c *Call) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// leave ends the wait because of cause, and returns its error. A lease that the call was
// given at the same time goes to the next call. The caller does not hold the mutex.
func (c *Call) leave(cause error) error {
	c.all.mu.Lock()
	if c.err != nil {
		defer c.all.mu.Unlock()
		return c.err
	}
	now := c.all.session.Now()
	end := &session.Unserved{Cause: cause}
	end.Waited, end.Holder.Owner = now.Sub(c.began), c.request.Group().Name
	if t := c.turn; t != nil {
		c.all.mu.Unlock()
		t.refuse(c.grant)
		return end
	}
	defer c.all.mu.Unlock()
	l := c.line
	place := l.ranks.rank(c.number)
	l.remove(c)
	if l.turn != nil {
		end.Position, end.Holder.Remaining = place, max(l.turn.deadline().Sub(now), 0)
		return end
	}
	if l.wait.Len() == 0 {
		l.asking.cancel()
	}
	switch {
	case l.asking.waiter != nil:
		waited := end.Waited
		end = l.asking.waiter.Unserved(cause)
		end.Position, end.Waited = end.Position+place-1, waited
		return end
	case c.waits: // the store has answered since
		end.Position, end.Holder.Owner = place, c.owner
		return end
	}
	return session.Because(cause, fmt.Errorf("%w: the store has not answered", session.ErrUnknown))
}
