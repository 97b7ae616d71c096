// Package pipenet is a network in memory for tests in virtual time: a bubble of
// testing/synctest cannot tell that a goroutine which reads from a socket is idle, but
// it can of one that reads from a pipe.
package pipenet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Listener is a [net.Listener] whose connections come from its own Dial. Its methods may
// be called at the same time.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	silent atomic.Pointer[atomic.Bool] // of the connections since the last Silence
}

// Listen returns a listener that is open.
func Listen() *Listener {
	l := &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.silent.Store(new(atomic.Bool))
	return l
}

// Accept implements [net.Listener]. After Close it returns [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The connections go on.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener]. The address is on the loopback interface, and nobody
// else's.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial connects to the listener, whatever the network and the address, and has the form
// of DialContext in [net/http.Transport]. It waits until the connection is accepted or ctx
// is done, whose error it returns then, and returns [net.ErrClosed] after Close.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return conn{here, l.silent.Load()}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Silence has the connections that there are deliver nothing more, in either direction, and
// stay open, as when a router forgets them.
func (l *Listener) Silence() { l.silent.Swap(new(atomic.Bool)).Store(true) }

// conn is the dialer's side of a connection.
type conn struct {
	net.Conn
	silent *atomic.Bool
}

// Write implements [net.Conn].
func (c conn) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Read implements [net.Conn].
func (c conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}
