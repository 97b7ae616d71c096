package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/server/internal/sockets"
)

// confirmWithin is the time after an answer in which a reset of its connection makes the service
// give the lease back. It is the time in which a client of the library confirms a grant.
const confirmWithin = timing.ConfirmWindow

// conn bounds the time in which a client reads an answer, and finds out whether it has been
// read. If a client dies before it reads an answer, its kernel resets the connection. A client
// that has read the answer sends the next request, or closes the connection in order.
type conn struct {
	net.Conn
	s *Server

	over  bool                  // there were too many connections already
	watch atomic.Pointer[watch] // nil without an answer to watch
	ended atomic.Bool           // the client has closed its side
	once  sync.Once             // counts it down
}

// watch holds the function to call when it turns out whether the last answer was read. After
// until it counts as read.
type watch struct {
	until   time.Time
	settled func(read bool)
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
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout)) // an error comes back from the write
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
	if w := c.watch.Swap(nil); w != nil {
		w.settled(read || time.Now().After(w.until))
	}
}

// Close closes the connection. If the client has closed its side since the
// answer was sent, it may have done so before the answer came, as the kernel
// does for a process that is killed: then a reset follows, for which a goroutine
// waits.
func (c *conn) Close() error {
	c.once.Do(func() { c.s.conns.Add(-1) })
	c.s.intake.silent.Delete(c)
	if doubt := c.watch.Load() != nil && c.ended.Load(); doubt && c.s.start(c.linger) {
		return nil
	}
	err := c.Conn.Close()
	c.settle(true)
	return err
}

// linger waits until a reset has come, or no longer matters. It asks for the state of the
// socket, since a stream that has ended reads the same after a reset.
func (c *conn) linger() {
	defer c.Conn.Close()
	defer c.settle(true)
	for pause := time.Millisecond; pause < c.s.cfg.confirmWithin; pause *= 2 {
		if sockets.WasReset(c.Conn) {
			c.settle(false)
			return
		}
		if !timing.Sleep(c.s.serving, pause) {
			return
		}
	}
}

// client is the context of a request. Its Err also detects a client that has closed the
// connection while net/http does not read from it.
type client struct {
	context.Context
	conn *conn // nil for a handler that is not served by Serve
}

func clientOf(ctx context.Context) client { return client{ctx, connOf(ctx)} }

// Err implements [context.Context].
func (c *client) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.conn != nil && c.conn.closing() {
		return context.Canceled
	}
	return nil
}

// closing reports whether the client has closed its side of the connection. It may read on.
func (c *conn) closing() bool {
	if !c.ended.Load() && sockets.HungUp(c.Conn) {
		c.ended.Store(true)
	}
	return c.ended.Load()
}

// oneWay reports whether a client may close its side of the connection after the request,
// as `nc -N` does, and read the answer. net/http ends the context of the request then.
func oneWay(r *http.Request) bool { return r.ProtoMajor == 1 && connOf(r.Context()) != nil }

// answering returns the context of a request that is answered at once. It does not end when
// the client closes its side of the connection.
func answering(r *http.Request) context.Context {
	if oneWay(r) {
		return context.WithoutCancel(r.Context())
	}
	return r.Context()
}

type connKey struct{}

// withConn is for [http.Server.ConnContext].
func withConn(ctx context.Context, c net.Conn) context.Context {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn }) // of TLS
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request; nil for a handler that is not served by
// [Server.Serve].
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// onReset calls settled with false if the connection of a request is reset before the client has
// read the next answer, and with true otherwise, as always for a handler that is not served by
// [Server.Serve].
func onReset(ctx context.Context, settled func(read bool)) {
	c := connOf(ctx)
	if c == nil || !c.s.cfg.undoOnReset {
		settled(true)
		return
	}
	c.settle(true)
	c.watch.Store(&watch{until: time.Now().Add(c.s.cfg.confirmWithin), settled: settled})
}

// listener wraps the connections of another listener, and counts them.
type listener struct {
	net.Listener
	s *Server
}

// spare is the number of connections beyond the maximum that are answered with 503. Further
// connections are closed.
const spare = 32

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			l.s.scarcity.failed(l.s.cfg.log, err)
			return nil, err
		}
		n, most := l.s.conns.Add(1), int64(l.s.cfg.maxConnections)
		if n <= most+spare {
			accepted := &conn{Conn: c, s: l.s, over: n > most}
			l.s.intake.silent.Store(accepted, nil)
			return accepted, nil
		}
		l.s.conns.Add(-1)
		_ = c.Close()
	}
}
