package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/ticket"
)

// confirmWithin is how long after an answer its connection may be reset for the
// lease to be given back: a client that vanishes at that moment costs the others
// as much as one of the library's.
const confirmWithin = ticket.ConfirmWindow

// conn finds out whether an answer has been read. The kernel of a client that
// died with an answer unread, or before it came, resets the connection. A client
// that has read it goes on to ask, or closes in order.
type conn struct {
	net.Conn
	s *Server

	watch atomic.Pointer[watch] // nil for none
	ended atomic.Bool           // the client has closed its side
}

// watch is what is to be done if the answer that was just sent is not read.
type watch struct {
	until      time.Time
	undo, keep func()
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.settle(true)
	case errors.Is(err, io.EOF):
		c.ended.Store(true)
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		c.settle(errors.Is(err, net.ErrClosed))
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.settle(false)
	}
	return n, err
}

// settle ends the watch: the answer has been read, or not.
func (c *conn) settle(read bool) {
	if c.watch.Load() == nil { // as nearly always
		return
	}
	switch w := c.watch.Swap(nil); {
	case w == nil:
	case read || time.Now().After(w.until):
		w.keep()
	default:
		w.undo()
	}
}

// Close closes the connection. If the client has closed its side since the
// answer was sent, it may have done so before the answer came, as the kernel
// does for a process that is killed: then a reset follows, for which a goroutine
// waits.
func (c *conn) Close() error {
	if doubt := c.watch.Load() != nil && c.ended.Load(); doubt && c.s.desk.start(c.linger) {
		return nil
	}
	err := c.Conn.Close()
	c.settle(true)
	return err
}

// linger waits until a reset has come, or cannot come any more. It does not
// show in what is read: the stream has ended already.
func (c *conn) linger() {
	defer c.Conn.Close()
	defer c.settle(true)
	for pause := time.Millisecond; pause < confirmWithin; pause *= 2 {
		if wasReset(c.Conn) {
			c.settle(false)
			return
		}
		select {
		case <-time.After(pause):
		case <-c.s.serving.Done():
			return
		}
	}
}

type connKey struct{}

// withConn is for [http.Server.ConnContext].
func withConn(ctx context.Context, c net.Conn) context.Context {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn }) // of TLS, or passed on
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// onReset has undo called if the connection of a request is reset before the
// answer that is about to be sent has been read, and otherwise keep. A handler
// that is not served by [Server.Serve] does not find out.
func onReset(ctx context.Context, undo, keep func()) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		keep()
		return
	}
	c.settle(true)
	c.watch.Store(&watch{until: time.Now().Add(confirmWithin), undo: undo, keep: keep})
}

// listener wraps the connections of another.
type listener struct {
	net.Listener
	s *Server
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, s: l.s}, nil
}
