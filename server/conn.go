package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// confirmWithin is how long a lock that is handed over awaits its confirmation,
// and how long after an answer its connection may be reset for the lease to be
// given back: what a client costs others that vanishes at that moment.
const confirmWithin = time.Second

// conn finds out whether an answer has been read. A client that died before it
// read the answer has its side of the connection reset by the kernel; one that
// has read it goes on to ask, or closes in order.
type conn struct {
	net.Conn

	mu    sync.Mutex
	watch *watch
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
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		c.settle(errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed))
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
	c.mu.Lock()
	w := c.watch
	c.watch = nil
	c.mu.Unlock()
	switch {
	case w == nil:
	case read || time.Now().After(w.until):
		w.keep()
	default:
		w.undo()
	}
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.settle(true)
	return err
}

type connKey struct{}

// withConn is for [http.Server.ConnContext].
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = &watch{until: time.Now().Add(confirmWithin), undo: undo, keep: keep}
}

// listener wraps the connections of another.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}
