package express

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Bounds of a connection.
const (
	// room is what a request may take; a larger one is served by net/http.
	room = 4 << 10
	// writeTimeout is how long an answer may take to be sent, or a little less.
	writeTimeout = 30 * time.Second
)

// States of a connection.
const (
	idle int32 = iota // between two requests: it may be closed by others
	busy
	shut
)

// conn is a connection that is served here. One goroutine serves it; another
// one reads ahead while a handler wants to know whether the client has gone.
type conn struct {
	net.Conn
	front  *front
	ctx    context.Context // of the connection
	remote string
	state  atomic.Int32

	buf  [room]byte
	used int // of buf
	out  response
	in   parser

	now             time.Time // when the last request was answered
	readBy, writeBy time.Time // the deadlines that are set

	ahead   chan struct{} // closed when reading ahead has ended; nil if it has not begun
	stopped atomic.Bool   // reading ahead was told to end
	broken  bool          // it has found the connection's end
}

// serve serves requests until one comes that is not for here.
func (c *conn) serve() {
	s, passed := c.front.s, false
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // it is compared as net/http does
			s.logf("express: panic serving %v: %v\n%s", c.remote, v, debug.Stack())
		}
		if !passed {
			_ = c.Close()
		}
		s.remove(c)
	}()
	for patience := s.Rest.ReadHeaderTimeout; c.fill(patience); patience = s.Rest.IdleTimeout {
		p, ok := c.in.parse(c.buf[:c.used])
		if !ok || !s.Takes(p.method, p.url.RawPath) {
			passed = c.pass()
			return
		}
		if !c.handle(&p) {
			return
		}
		c.used = copy(c.buf[:], c.buf[p.size:c.used])
	}
}

// fill waits for the next request, unless it has come already.
func (c *conn) fill(patience time.Duration) bool {
	if c.used > 0 {
		return true
	}
	c.readBy = c.prolong(c.readBy, patience, c.SetReadDeadline)
	c.state.Store(idle)
	if c.front.s.closing.Load() { // who closes what is idle may have been here already
		return false
	}
	n, err := c.Read(c.buf[:])
	c.used = n
	return err == nil && c.state.CompareAndSwap(idle, busy)
}

// prolong sets a deadline, unless it is about right: most requests follow one
// another so closely that one for each is a good part of what they cost.
func (c *conn) prolong(set time.Time, d time.Duration, to func(time.Time) error) time.Time {
	by := c.now.Add(d)
	if d <= 0 || set.Before(by) && by.Sub(set) < d/8 {
		return set
	}
	_ = to(by) // an error comes back from what is done next
	return by
}

// handle answers a request. It reports whether there may be another one.
func (c *conn) handle(p *plain) bool {
	x := &exchange{Context: c.ctx, c: c}
	defer x.end()
	defer c.unwatch(x)
	c.out.again()
	s := c.front.s
	s.Handler.ServeHTTP(&c.out, x.of(p))
	c.out.close = c.out.close || s.closing.Load()
	c.now = time.Now()
	c.writeBy = c.prolong(c.writeBy, writeTimeout, c.SetWriteDeadline)
	_, err := c.Write(c.out.finish(c.now))
	c.unwatch(x)
	return err == nil && !c.out.close && !c.broken
}

// watch reads ahead for the request, to find out whether the client goes. What
// it reads is the next request; a client that has sent so much of that already
// that there is no room for more is not watched.
func (c *conn) watch(x *exchange) {
	if c.used == len(c.buf) {
		return
	}
	c.readBy = time.Time{}
	_ = c.SetReadDeadline(c.readBy)
	c.ahead = make(chan struct{})
	c.stopped.Store(false)
	go func() {
		defer close(c.ahead)
		n, err := c.Read(c.buf[c.used:])
		c.used += n
		var late net.Error
		if err == nil || c.stopped.Load() && errors.As(err, &late) && late.Timeout() {
			return
		}
		c.broken = true
		x.end()
	}()
}

// unwatch ends the reading ahead for the request, if it has begun. It does not
// begin any more then.
func (c *conn) unwatch(x *exchange) {
	x.answer()
	if c.ahead == nil {
		return
	}
	c.stopped.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0)) // long ago
	<-c.ahead
	c.ahead = nil
	c.readBy = time.Time{}
	_ = c.SetReadDeadline(c.readBy)
}

// pass gives the connection to net/http, with what has been read of it.
func (c *conn) pass() bool {
	_ = c.SetDeadline(time.Time{})
	return c.front.pass(&passed{Conn: c.Conn, read: append([]byte(nil), c.buf[:c.used]...)})
}

// passed is a connection of which something has been read already.
type passed struct {
	net.Conn
	read []byte
}

func (c *passed) Read(b []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.read)
	c.read = c.read[n:]
	return n, nil
}

// NetConn returns the connection beneath.
func (c *passed) NetConn() net.Conn { return c.Conn }
