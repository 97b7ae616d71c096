package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// Bounds of a connection, against clients that send slowly, or much, or do not
// read.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	writeTimeout  = 10 * time.Second // of a piece of an answer
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
	pingAfter     = 5 * time.Second // of silence on an HTTP/2 connection
	pingTimeout   = 5 * time.Second
)

// newHTTP returns the HTTP server around the handler.
func (s *Server) newHTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: s.cfg.headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		ConnContext: withConn, ErrorLog: slog.NewLogLogger(s.cfg.log.Handler(), slog.LevelDebug),
	}
}

// Serve serves the connections that l accepts, with TLS if config is not nil, until Shutdown or
// Close. It may be called for several listeners, each with its own TLS; HTTP/2 is offered if
// config.NextProtos names it. Unlike an [http.Server] around the handler it bounds the number of
// connections, the time in which requests arrive and answers are read, and notices if the client
// of a long poll died before it read the grant of its lock.
//
// It returns [http.ErrServerClosed] after Shutdown or Close.
func (s *Server) Serve(l net.Listener, config *tls.Config) error {
	counted := net.Listener(listener{l, s})
	if config != nil {
		counted = tls.NewListener(counted, config)
	}
	return s.intake.serve(l, func() error { return s.http.Serve(counted) })
}

// Leave makes the readiness probe fail, and closes connections after their next answer. All
// requests are served as before. So balancers send clients elsewhere before Drain and the end of
// the port.
func (s *Server) Leave() { s.leaving.Store(true) }

func (s *Server) isLeaving() bool { return s.leaving.Load() || s.isDraining() }

// Drain begins the end. The readiness probe fails, and requests that wait are answered: with 202
// if their place is kept, so that their clients ask another replica, and otherwise with 503.
// Operations run on, but no more are begun. Other requests are served as before.
func (s *Server) Drain() { s.drain() }

func (s *Server) isDraining() bool { return s.serving.Err() != nil }

// Shutdown drains, waits until all requests and operations have ended, and closes the service.
// When the operations have ended it stops accepting connections. The first request on a
// connection that was accepted before is still answered if it arrives within a second. If ctx
// ends first, Shutdown cancels the operations, answers their clients, and returns the error of
// ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	err := s.operations.Wait(ctx) // before the connections are closed, for the answers to their clients
	if err != nil {
		s.operations.Cancel()
		_ = s.operations.Wait(context.Background()) // Do ends with its context
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), firstRequest+lastWords)
		defer cancel()
	}
	return oneline.Join(err, s.intake.end(ctx), s.http.Shutdown(ctx), s.Close())
}

// lastWords bounds the time to send the last answers.
const lastWords = time.Second

// Close ends the service at once: it closes the connections, cancels the operations, waits until
// they have released their locks, and closes the store. Further calls return the result of the
// first.
func (s *Server) Close() error { return s.close() }

func (s *Server) end() error {
	s.Drain()
	s.operations.Cancel()
	err := s.http.Close()
	_ = s.operations.Wait(context.Background()) // Do ends with its context
	s.streams.close()
	s.die()
	_, ended := s.session.End()
	err = oneline.Join(err, ended, s.operations.Close())
	s.timeouts.close()
	s.tries.close()
	return err
}
