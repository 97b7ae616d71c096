// Package pipenet is a network in memory for tests in virtual time: a bubble of
// testing/synctest does not detect that a goroutine which reads from a socket is idle,
// but it does if the goroutine reads from a pipe.
package pipenet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Listener is a [net.Listener] for the connections of its own Dial. Its methods may
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

// Addr implements [net.Listener]. The address is on the loopback interface, and not in use.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial connects to the listener, for every network and address, and has the form of
// DialContext in [net/http.Transport]. It waits until the connection is accepted, or returns
// the error of ctx, or [net.ErrClosed] after Close.
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

// Silence drops all further data of the present connections, in both directions, and keeps
// them open, as when a router forgets them.
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
