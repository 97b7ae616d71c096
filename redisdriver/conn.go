package redisdriver

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// go-redis looks at a context's deadline while it waits for a reply, but not
// at its cancellation, and a goroutine for every call would double the time of
// a round trip. So the caller's goroutine waits in the socket, and a
// cancellation, which is rare, makes the socket's deadline pass. What links a
// call to its socket is the deadline itself: every call has one of its own,
// and go-redis sets it on the connection that it uses.

// call is the context of one command or pipeline.
type call struct {
	context.Context
	conns    *conns
	deadline time.Time
	done     atomic.Bool
	stop     func() bool // nil if the context cannot be cancelled
}

// end is called when the call has returned.
func (c *call) end() {
	if c.stop != nil {
		c.done.Store(true)
		c.stop()
	}
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Deadline implements [context.Context]. That of a call that was cancelled has
// passed.
func (c *call) Deadline() (time.Time, bool) {
	if c.Err() != nil {
		return past, true
	}
	return c.deadline, true
}

// interrupt ends the call's wait. It looks again for as long as the call has
// not reached a socket: until then go-redis watches the context by itself, but
// there is a moment between the two.
func (c *call) interrupt() {
	for !c.done.Load() && !c.conns.interrupt(c.deadline) {
		time.Sleep(time.Millisecond)
	}
}

// conns are the open connections of a client.
type conns struct {
	calls atomic.Int64

	mu  sync.Mutex
	set map[*conn]struct{}
}

// deadline returns a time a little before t which no other call under way has.
func (cs *conns) deadline(t time.Time) time.Time {
	const mark = 1<<16 - 1 // ns: the part of a deadline that tells calls apart
	return time.Unix(0, (t.UnixNano()-mark)&^mark|cs.calls.Add(1)&mark)
}

// interrupt makes the connection that serves the deadline fail at once. It
// reports whether there is one.
func (cs *conns) interrupt(deadline time.Time) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.set {
		if c.interrupt(deadline) {
			return true
		}
	}
	return false
}

// dialer makes the connections of another dialer interruptible. One that
// cannot be had becomes a connection that fails at its first use: the pool
// would count and print the failures of a dialer, and after some stop asking.
func (cs *conns) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return &noConn{err: &dialError{err}}, nil
		}
		return cs.add(nc), nil
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func (cs *conns) add(nc net.Conn) net.Conn {
	c := &conn{Conn: nc, owner: cs}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.set == nil {
		cs.set = make(map[*conn]struct{})
	}
	cs.set[c] = struct{}{}
	if sc, ok := nc.(syscall.Conn); ok {
		return &rawConn{conn: c, Conn: sc}
	}
	return c
}

// conn is a connection that knows which call it serves.
type conn struct {
	net.Conn
	owner *conns

	mu          sync.Mutex
	serves      time.Time // the deadline of the call
	interrupted bool
}

// interrupt ends the call of the given deadline if the connection serves it.
func (c *conn) interrupt(deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serves != deadline {
		return false
	}
	c.interrupted = true
	_ = c.SetDeadline(past)
	return true
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetReadDeadline(c.serve(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.serve(t))
}

// serve notes that the connection serves the call of deadline t, and returns
// the deadline to be set.
func (c *conn) serve(t time.Time) time.Time {
	if c.serves != t {
		c.serves, c.interrupted = t, false
	}
	if c.interrupted {
		return past
	}
	return t
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.set, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// rawConn lets go-redis see whether the peer has closed an idle connection.
type rawConn struct {
	*conn
	syscall.Conn
}

// noConn is a connection that could not be had.
type noConn struct {
	net.Conn // nil
	err      error
}

func (c *noConn) Read([]byte) (int, error)         { return 0, c.err }
func (c *noConn) Write([]byte) (int, error)        { return 0, c.err }
func (c *noConn) Close() error                     { return nil }
func (c *noConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *noConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *noConn) SetDeadline(time.Time) error      { return nil }
func (c *noConn) SetReadDeadline(time.Time) error  { return nil }
func (c *noConn) SetWriteDeadline(time.Time) error { return nil }

// dialError is why there is no connection. The pool unwraps an error once.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }
