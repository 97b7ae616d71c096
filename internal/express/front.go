package express

import (
	"net"
	"sync"
)

// front is a listener as net/http sees it: of its connections it is given those
// that are passed on, only.
type front struct {
	net.Listener
	s *Server

	passed chan net.Conn
	failed chan error // of Accept, after which net/http pauses or gives up
	once   sync.Once
	closed chan struct{}
}

// accept takes connections until the listener is closed.
func (f *front) accept() {
	for {
		c, err := f.Listener.Accept()
		if err == nil {
			f.s.add(f, c)
			continue
		}
		select {
		case f.failed <- err:
		case <-f.closed:
			return
		}
	}
}

// Accept implements [net.Listener].
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.passed:
		return c, nil
	case err := <-f.failed:
		return nil, err
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (f *front) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Listener.Close()
}

// pass gives a connection to net/http. It reports whether that took it.
func (f *front) pass(c net.Conn) bool {
	select {
	case f.passed <- c:
		return true
	case <-f.closed:
		return false
	}
}
