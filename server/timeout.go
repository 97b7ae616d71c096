package server

import (
	"context"
	"sync"
	"time"
)

// timeouts bound what is asked of the store. A context with a timer of its own
// for every request is a good part of what a short one costs, so those that come
// soon after one another share one: a request gets the whole time, or up to a
// sixteenth less. A store that is punctual needs only be told.
type timeouts struct {
	each time.Duration
	told bool // the store is punctual

	mu     sync.Mutex
	last   context.Context
	cancel context.CancelFunc // of last; one that is replaced ends by itself
	until  time.Time          // last is shared so long
}

// begin returns a context that ends in time, counted from now, and not with the
// client: what has been begun is carried through. It has the values of ctx.
func (t *timeouts) begin(ctx context.Context, now time.Time) context.Context {
	if t.told {
		return &told{context.WithoutCancel(ctx), now.Add(t.each)}
	}
	return bound{t.shared(now), ctx}
}

func (t *timeouts) shared(now time.Time) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.until) {
		t.last, t.cancel = context.WithDeadline(context.Background(), now.Add(t.each))
		t.until = now.Add(t.each / 16)
	}
	return t.last
}

// close lets go of the timer. Who asks a closed store all the same has time to
// be told so.
func (t *timeouts) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancel != nil {
		t.cancel()
	}
	t.until = time.Time{}
}

// bound ends as the context that it embeds does, and has the values of both.
type bound struct {
	context.Context
	values context.Context
}

// Value implements [context.Context].
func (b bound) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}

// told is the context of a call that ends by itself at a deadline, which it does
// not show in any other way.
type told struct {
	context.Context // without an end
	deadline        time.Time
}

// Deadline implements [context.Context].
func (c *told) Deadline() (time.Time, bool) { return c.deadline, true }
