package interrupt

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
)

// A library greets a server on a new connection before it sends a command, and may forget to
// close the connection if the greeting fails. No command was sent before the greeting is over.

// callKey is the key under which a call finds itself among the values of a
// context that was derived from it.
type callKey struct{}

// Value implements [context.Context].
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Forsake closes the connection of the call if its greeting was not completed: a library may
// forget to do so.
func (c *Call) Forsake() {
	c.conns.drop(func(nc *conn) bool {
		nc.mu.Lock()
		defer nc.mu.Unlock()
		return slices.Contains(nc.greeting, c.deadline)
	})
}

// Unsent reports whether a connection was made for the call on which no verb was written,
// by this or another call.
func (c *Call) Unsent() bool {
	nc := c.dialed.Load()
	return nc != nil && c.conns.Verb != "" && !nc.spoken.Load()
}

// Again prepares the call for another try, which may use a connection that is there.
func (c *Call) Again() { c.dialed.Store(nil) }

// Greeted records that the greeting on the call's connection is over and commands may follow. The context is the call or comes from it.
func (cs *Conns) Greeted(ctx context.Context) {
	call, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.set {
		c.mu.Lock()
		if slices.Contains(c.greeting, call.deadline) {
			c.greeting, c.greeted = nil, true
		}
		c.mu.Unlock()
	}
}

// family are the connections that were made for one context.
type family struct {
	mu    sync.Mutex
	conns []net.Conn
}

// familyKey is the key under which a context has its family.
type familyKey struct{}

// Family returns a context, and a function that closes all connections that were added for it.
// Use it for a library that reconnects on its own, and may forget a connection after a failed
// greeting.
func Family(ctx context.Context) (context.Context, func()) {
	f := new(family)
	return context.WithValue(ctx, familyKey{}, f), f.close
}

// Again reports whether a connection was added for the family of a context before.
func Again(ctx context.Context) bool {
	f, ok := ctx.Value(familyKey{}).(*family)
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns) > 0
}

func (f *family) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, nc := range f.conns {
		_ = nc.Close()
	}
	f.conns = nil
}

// maxGreeting bounds the number of deadlines of a greeting. Greeted is not called for
// subscriptions.
const maxGreeting = 16

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.report(err)
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if c.owner.Verb != "" && !c.spoken.Load() && bytes.Contains(b, []byte(c.owner.Verb)) {
		c.spoken.Store(true)
	}
	n, err := c.Conn.Write(b)
	return n, c.report(err)
}

// report returns err, or the error that no command was sent.
func (c *conn) report(err error) error {
	if err == nil || c.owner.Verb == "" || c.spoken.Load() {
		return err
	}
	return &net.OpError{Op: "dial", Net: "greeting", Addr: c.RemoteAddr(), Err: err}
}
