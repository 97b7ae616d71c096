// Package express serves short HTTP/1.1 requests at little cost, in front of a
// server of net/http that serves all the others.
//
// A service of locks answers the same small requests again and again, on
// connections that stay. What net/http does for each of them takes as long as
// what the service and its store do. Here a connection is served by one loop as
// long as its requests are of the plainest form, whole in one piece, and for a
// path that is marked as short. The first one that is anything else passes the
// connection on to net/http, with all bytes of that request: whatever is unusual,
// slow, large, streamed or malformed is answered there, by code that has seen
// more. So the parser here need not be complete but only right, which is tested
// against that of net/http.
package express

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves connections. Its fields are not changed once it serves.
type Server struct {
	// Handler answers the requests that are taken. It must not stream, nor
	// change the header of a request; see response for what it may rely on.
	Handler http.Handler
	// Takes reports whether requests of a method for a path, still
	// percent-encoded, are to be served here.
	Takes func(method, path string) bool
	// Rest serves all others. It has the timeouts: ReadHeaderTimeout for the
	// first request of a connection, IdleTimeout for the next ones. Its
	// ConnContext and ErrorLog are used here, too.
	Rest *http.Server

	closing atomic.Bool

	mu    sync.Mutex
	conns map[*conn]struct{}
	empty chan struct{} // closed when conns has none any more; nil until somebody waits for that
}

// Serve serves the connections that l accepts, until Shutdown or Close. It
// returns what [http.Server.Serve] does.
func (s *Server) Serve(l net.Listener) error {
	f := &front{Listener: l, s: s, passed: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{})}
	go f.accept()
	return s.Rest.Serve(f)
}

// Shutdown stops listening, closes the connections that are idle, and returns
// when the requests under way have been answered, or with the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closing.Store(true)
	s.each(func(c *conn) {
		if c.state.CompareAndSwap(idle, shut) {
			_ = c.Close()
		}
	})
	err := s.Rest.Shutdown(ctx)
	select {
	case <-s.emptied():
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return err
}

// Close stops listening and cuts all connections.
func (s *Server) Close() error {
	s.closing.Store(true)
	s.each(func(c *conn) {
		c.state.Store(shut)
		_ = c.Close()
	})
	return s.Rest.Close()
}

func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f(c)
	}
}

// emptied is closed when no connection is served here any more.
func (s *Server) emptied() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	if len(s.conns) == 0 {
		close(s.empty)
		s.empty = nil
	}
	return empty
}

// add begins to serve a connection.
func (s *Server) add(f *front, nc net.Conn) {
	c := &conn{Conn: nc, front: f, ctx: s.context(nc), remote: nc.RemoteAddr().String(), now: time.Now()}
	c.state.Store(busy)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = nc.Close()
		return
	}
	if s.conns == nil {
		s.conns = make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	go c.serve()
}

// context is that of all requests of a connection, with the values that those of
// net/http have.
func (s *Server) context(nc net.Conn) context.Context {
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.Rest)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, nc.LocalAddr())
	if s.Rest.ConnContext != nil {
		ctx = s.Rest.ConnContext(ctx, nc)
	}
	return ctx
}

// remove takes note that a connection is not served here any more.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

func (s *Server) logf(format string, args ...any) {
	if s.Rest.ErrorLog != nil {
		s.Rest.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}
