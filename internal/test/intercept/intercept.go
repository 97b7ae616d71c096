// Package intercept puts the faults of a test between a store and its callers.
package intercept

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// Verb is a kind of message.
type Verb string

// The verbs.
const (
	Acquire Verb = "acquire"
	Renew   Verb = "renew"
	Release Verb = "release"
	Break   Verb = "break"
	Inspect Verb = "inspect" // also by a glance
	List    Verb = "list"
	Marked  Verb = "marked"
	Reserve Verb = "reserve"
	Mark    Verb = "mark"
	Close   Verb = "close"
)

// OfMark reports whether a message is about the mark of the store.
func (v Verb) OfMark() bool { return v == Marked || v == Reserve || v == Mark }

// Message is a request to a store.
type Message struct {
	Verb Verb
	// Request is that of an acquire. It may be changed before the message is sent.
	Request driver.Request
	// Refs has the leases of a renewal, or the lease of a release.
	Refs []driver.Ref
}

// ID returns the id of the lease, or of the first.
func (m *Message) ID() string {
	if len(m.Refs) > 0 {
		return m.Refs[0].ID
	}
	return m.Request.ID
}

// Through handles a message: it may send the message, also more than once or after it has returned.
// If it returns no error it has sent the message, and the caller gets the last answer.
type Through func(ctx context.Context, m *Message, send func(context.Context) error) error

// Driver is a store as one client reaches it: each message goes through a function. It implements the
// optional interfaces with messages and hints.
type Driver struct {
	Store   func() driver.Driver // the store that receives a message now
	Through Through
	// Hint delivers a hint, or does not. Nil delivers each at once.
	Hint func(h driver.Hint, deliver func(driver.Hint))
	// Change changes an answer to an acquire, a renewal or a release. Nil leaves it as it is.
	Change func(m *Message, reply *driver.Reply)
	// Split makes a renewal of several leases a message for each, and not one for all.
	Split bool
}

// New returns a driver of a store.
func New(store driver.Driver, through Through) *Driver {
	return &Driver{Store: func() driver.Driver { return store }, Through: through}
}

// ask makes f of a message go through.
func ask[T any](ctx context.Context, d *Driver, m *Message, f func(context.Context, driver.Driver) (T, error)) (T, error) {
	var mu sync.Mutex
	var answer, none T
	err := d.Through(ctx, m, func(ctx context.Context) error {
		got, err := f(ctx, d.Store())
		mu.Lock()
		defer mu.Unlock()
		answer = got
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return none, err
	}
	return answer, nil
}

// reply is ask for an answer that may be changed.
func (d *Driver) reply(ctx context.Context, m *Message, f func(context.Context, driver.Driver) (driver.Reply, error)) (driver.Reply, error) {
	reply, err := ask(ctx, d, m, f)
	if err == nil && d.Change != nil {
		d.Change(m, &reply)
	}
	return reply, err
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	m := &Message{Verb: Acquire, Request: req}
	return d.reply(ctx, m, func(ctx context.Context, s driver.Driver) (driver.Reply, error) { return s.Acquire(ctx, m.Request) })
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if !d.Split || len(refs) < 2 {
		d.renew(ctx, refs, each)
		return
	}
	for i := range refs {
		d.renew(ctx, refs[i:i+1], func(_ int, reply driver.Reply, err error) { each(i, reply, err) })
	}
}

// renew sends one message.
func (d *Driver) renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	m := &Message{Verb: Renew, Refs: slices.Clone(refs)}
	type answer struct {
		reply driver.Reply
		err   error
	}
	answers, err := ask(ctx, d, m, func(ctx context.Context, s driver.Driver) ([]answer, error) {
		answers := make([]answer, len(refs))
		s.Renew(ctx, m.Refs, func(i int, reply driver.Reply, err error) { answers[i] = answer{reply, err} })
		if len(refs) == 1 {
			return answers, answers[0].err
		}
		return answers, nil
	})
	if err != nil {
		answers = slices.Repeat([]answer{{err: err}}, len(refs))
	}
	for i, a := range answers {
		if a.err == nil && d.Change != nil {
			d.Change(m, &a.reply)
		}
		each(i, a.reply, a.err)
	}
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	m := &Message{Verb: Release, Refs: []driver.Ref{ref}}
	return d.reply(ctx, m, func(ctx context.Context, s driver.Driver) (driver.Reply, error) { return s.Release(ctx, ref) })
}

// as returns an optional interface of a store, which has it.
func as[T any](s driver.Driver) T {
	found, _ := driver.As[T](s)
	return found
}

// Break implements [driver.Breaker].
func (d *Driver) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return ask(ctx, d, &Message{Verb: Break}, func(ctx context.Context, s driver.Driver) (driver.Reply, error) {
		return as[driver.Breaker](s).Break(ctx, key, id, reason)
	})
}

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return ask(ctx, d, &Message{Verb: Inspect}, func(ctx context.Context, s driver.Driver) (driver.Snapshot, error) {
		return as[driver.Inspector](s).Inspect(ctx, key)
	})
}

// Glance implements [driver.Glancer].
func (d *Driver) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return ask(ctx, d, &Message{Verb: Inspect}, func(ctx context.Context, s driver.Driver) (driver.Snapshot, error) {
		return driver.Glance(ctx, s, key)
	})
}

// List implements [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	type page struct {
		keys []string
		next string
	}
	got, err := ask(ctx, d, &Message{Verb: List}, func(ctx context.Context, s driver.Driver) (p page, err error) {
		p.keys, p.next, err = as[driver.Inspector](s).List(ctx, prefix, cursor)
		return p, err
	})
	return got.keys, got.next, err
}

// Marked implements [driver.Marker].
func (d *Driver) Marked(ctx context.Context) (driver.Mark, bool, error) {
	type marked struct {
		driver.Mark
		ok bool
	}
	got, err := ask(ctx, d, &Message{Verb: Marked}, func(ctx context.Context, s driver.Driver) (m marked, err error) {
		m.Mark, m.ok, err = as[driver.Marker](s).Marked(ctx)
		return m, err
	})
	return got.Mark, got.ok, err
}

// Reserve implements [driver.Marker].
func (d *Driver) Reserve(ctx context.Context, by string, life time.Duration) (bool, error) {
	return ask(ctx, d, &Message{Verb: Reserve}, func(ctx context.Context, s driver.Driver) (bool, error) {
		return as[driver.Marker](s).Reserve(ctx, by, life)
	})
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, mark driver.Mark, by string) error {
	return d.Through(ctx, &Message{Verb: Mark}, func(ctx context.Context) error {
		return as[driver.Marker](d.Store()).Mark(ctx, mark, by)
	})
}

// Watch implements [driver.Watcher]. Hints are delivered one at a time.
func (d *Driver) Watch(hear func(driver.Hint)) (driver.Subscription, error) {
	if d.Hint == nil {
		return as[driver.Watcher](d.Store()).Watch(hear)
	}
	var mu sync.Mutex
	deliver := func(h driver.Hint) {
		mu.Lock()
		defer mu.Unlock()
		hear(h)
	}
	return as[driver.Watcher](d.Store()).Watch(func(h driver.Hint) { d.Hint(h, deliver) })
}

// Close implements [driver.Driver]. It is a message too, which may leave the store open.
func (d *Driver) Close() error {
	return d.Through(context.Background(), &Message{Verb: Close}, func(context.Context) error { return d.Store().Close() })
}
