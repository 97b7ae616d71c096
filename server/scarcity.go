package server

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/server/internal/api"
)

// scarcity remembers that connections could not be accepted, most often because
// the process has no descriptor left.
type scarcity struct {
	mu   sync.Mutex
	last time.Time
	told time.Time
}

const (
	// scarceFor is how long the service is not ready after it could not accept a
	// connection.
	scarceFor = 5 * time.Second
	// tellEvery is how often that is logged.
	tellEvery = 10 * time.Second
)

// failed takes note of the error of an Accept.
func (s *scarcity) failed(log *slog.Logger, err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.last = now
	if now.Sub(s.told) < tellEvery {
		return
	}
	s.told = now
	log.Warn("leasehold: connections are not accepted", "error", err)
}

func (s *scarcity) isNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.last.IsZero() && time.Since(s.last) < scarceFor
}

// crowded says that there are too many connections, if there are: nil otherwise.
func (s *Server) crowded() error {
	if s.conns.Load() < int64(s.cfg.maxConnections) && !s.scarcity.isNow() {
		return nil
	}
	return api.NewProblem(Overloaded, "%d connections are open, or no more can be accepted", s.conns.Load()).After(api.RetryLater)
}

// isOver reports whether a request comes on a connection that is one too many.
// Whether the process is alive is told on all.
func (s *Server) isOver(w *answer, r *http.Request) bool {
	c := connOf(r.Context())
	return c != nil && c.over && (w.x.Route == nil || w.x.Route.Operation != "livez")
}

// refuseOver answers on such a connection, and ends it.
func (s *Server) refuseOver(w *answer) {
	w.Header().Set("Connection", "close")
	w.refuse(api.NewProblem(Overloaded, "the service has its %d connections", s.cfg.maxConnections).After(api.RetryLater))
}
