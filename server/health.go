package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/server/auth"
)

func healthRoutes() []route {
	return []route{
		{Handle: (*Server).health, Route: Route{
			Method: http.MethodGet, Path: "/health", Operation: "health", Probe: true,
			Summary: "Return that the service runs", Reply: Health{},
			Success: []int{http.StatusOK},
		}},
		{Handle: (*Server).livez, Route: Route{
			Method: http.MethodGet, Path: "/livez", Operation: "livez", Probe: true,
			Summary: "Return whether the service is alive, even if its store is not", Reply: Health{},
			Success: []int{http.StatusOK},
		}},
		{Handle: (*Server).readyz, Route: Route{
			Method: http.MethodGet, Path: "/readyz", Operation: "readyz", Probe: true,
			Summary: "Return whether locks can be taken: the store is reachable and writable, and the service is not about to end",
			Reply:   Health{}, Success: []int{http.StatusOK},
			Causes: []*Cause{Draining, Unavailable, Overloaded},
		}},
		{Handle: (*Server).serveMetrics, Route: Route{
			Method: http.MethodGet, Path: "/metrics", Operation: "metrics", Probe: true, Verb: auth.Read,
			Summary: "Metrics of the service, in the format of Prometheus", Media: "text/plain",
			Success: []int{http.StatusOK},
		}},
	}
}

// Health is the answer to a probe.
type Health struct {
	Status  string `json:"status"`
	Service string `json:"service,omitempty"`
}

// health answers with a body that is specified byte for byte.
func (s *Server) health(w *answer, _ *http.Request) error {
	w.send(http.StatusOK, "application/json", []byte(`{"status":"ok","service":"distributed-lock"}`))
	return nil
}

func (s *Server) livez(w *answer, _ *http.Request) error {
	reply(w, http.StatusOK, Health{Status: "ok"})
	return nil
}

func (s *Server) readyz(w *answer, r *http.Request) error {
	if s.isLeaving() {
		return errDraining
	}
	if n := s.conns.Load(); n >= int64(s.cfg.maxConnections) || s.scarcity.isNow() {
		return newProblem(Overloaded, "%d connections are open, or no more can be accepted", n).After(retryLater)
	}
	if !s.hearsSoon(answering(r)) {
		return newProblem(Unavailable, "the service does not receive hints from the store yet").After(retryLater)
	}
	if err := s.ping(answering(r)); err != nil {
		p := newProblem(Unavailable, "the store cannot be reached, or cannot be written to").After(retryLater)
		return fmt.Errorf("%w: %w", p, err)
	}
	reply(w, http.StatusOK, Health{Status: "ok"})
	return nil
}

// hearWithin bounds how long a readiness probe waits until the service receives hints. It does
// not yet when it has just started, and the first probe comes at once.
const hearWithin = time.Second

// hearsSoon reports whether the service receives hints, at the latest after hearWithin.
func (s *Server) hearsSoon(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	defer context.AfterFunc(s.serving, cancel)()
	for !s.hears() {
		if !timing.Sleep(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return true
}

// probe is the last result of a readiness probe.
type probe struct {
	key string // of a lock of its own

	mu   sync.Mutex
	when time.Time
	err  error
}

// probeEvery is the time for which a result is used.
const probeEvery = time.Second

// ping finds out whether the store can be reached and written to, at most once a second.
func (s *Server) ping(ctx context.Context) error {
	p := &s.probe
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.when) < probeEvery {
		return p.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.storeTimeout)
	defer cancel()
	p.err = session.Ping(ctx, s.store, p.key, "readiness probe")
	p.when = time.Now()
	return p.err
}
