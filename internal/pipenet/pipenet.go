// Package pipenet is a network in memory for tests in virtual time: a bubble of
// testing/synctest cannot tell that a goroutine which reads from a socket is idle, but
// it can of one that reads from a pipe.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// Listener is a [net.Listener] whose connections come from its own Dial. Its methods may
// be called at the same time.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a listener that is open.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
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
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
