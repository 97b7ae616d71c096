package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of a connection, against clients that send or read slowly.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// newHTTP returns the HTTP server around the handler.
func (s *Server) newHTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: withConn, ErrorLog: slog.NewLogLogger(s.cfg.log.Handler(), slog.LevelDebug),
	}
}

// Serve serves the connections that l accepts, with TLS if config is not nil,
// until Shutdown or Close. Unlike a server of one's own around the handler it
// bounds how long requests may take to arrive, and notices that the client of a
// long poll did not live to read that it was granted its lock.
//
// It returns [http.ErrServerClosed] after Shutdown or Close.
func (s *Server) Serve(l net.Listener, config *tls.Config) error {
	if config == nil {
		return s.http.Serve(listener{l})
	}
	s.mu.Lock()
	if s.http.TLSConfig == nil {
		s.http.TLSConfig = config
	}
	s.mu.Unlock()
	return s.http.ServeTLS(listener{l}, "", "")
}

// Drain begins the end: the service says that it is not ready any more, and
// requests that wait are answered: with 202 if their place is kept, so that they
// ask another replica, and otherwise with 503. Other requests are served as
// before.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isDraining() {
		close(s.draining)
	}
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// Shutdown drains, and waits until all requests and operations have ended, or
// ctx has: then it ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	err := s.http.Shutdown(ctx)
	return errors.Join(err, s.Close())
}

// Close ends the service at once. It does not close the store. Further calls do
// nothing.
func (s *Server) Close() error {
	s.Drain()
	err := s.http.Close()
	s.closing.Do(s.desk.close)
	return err
}
