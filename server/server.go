// Package server is the HTTP service of leasehold: the locks of one store for
// programs in any language.
//
//	service, err := server.New(redisStore)
//	…
//	defer service.Close()
//	http.ListenAndServe("127.0.0.1:8080", service)
//
// It is a thin translation. All state is in the store, so that several replicas on one store are
// one service, and a restart loses only connections. The lease id that a client chooses is its
// idempotency key: a repeated request has the effect and the answer of a single one. Package
// httpdriver is the client in Go; docs/http.md describes the interface.
package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/session"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/server/internal/overview"
	"github.com/leasehold-go/leasehold/server/operations"
)

// Server serves the locks of one store. It is an [http.Handler], safe for
// concurrent use.
type Server struct {
	store      driver.Driver
	verbs      driver.Driver // the store, as requests ask it for leases
	cfg        config
	table      *table
	http       *http.Server
	session    *session.Session
	terms      session.Terms // of requests
	inflight   *inflight
	contention contention
	opened     time.Time

	addressForm atomic.Pointer[string] // of the store's addresses; nil until one is known

	intake   intake
	conns    atomic.Int64 // that are open
	scarcity scarcity
	watchers *watchers
	overview *overview.Overview // nil without a page
	views    *quota             // of requests to it
	streams  streams
	quota    *quota
	places   places
	timeouts *timeouts // of renewals and releases
	tries    *timeouts // of a try of an acquire
	metrics  *metrics
	probe    probe
	document func() []byte

	operations *operations.Runner

	trail *trail // nil without an audit log

	serving context.Context // ends when the end has begun
	drain   context.CancelFunc
	alive   context.Context // ends when all connections have been closed
	die     context.CancelFunc
	leaving atomic.Bool // the service is not ready any more, and serves on
	close   func() error
}

// New returns the service of a store, and takes charge of the store: Close
// closes it. The service listens for the store's hints from now on.
func New(store driver.Driver, opts ...Option) (*Server, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("server: nil store: %w", driver.ErrInvalid)
	}
	s := &Server{store: store, cfg: defaults()}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("nil option: %w", driver.ErrInvalid))
			continue
		}
		errs = append(errs, o(&s.cfg))
	}
	if err := oneline.Join(errs...); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if s.verbs = store; s.cfg.tracer != nil {
		s.verbs = traced{store, s.cfg.tracer}
	}
	s.serving, s.drain = context.WithCancel(context.Background())
	s.alive, s.die = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.end)
	ops := s.cfg.operations
	ops.Store, ops.StoreTimeout, ops.Log, ops.Serving = store, s.cfg.storeTimeout, s.cfg.log, s.serving
	var err error
	if s.operations, err = operations.New(ops); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.quota = newQuota(s.cfg.perClient, s.cfg.perKey)
	s.views = newQuota(viewsEach, 0)
	s.places = places{quota: s.quota, all: make(map[leaseKey]*place)}
	_, punctual := store.(driver.DeadlineAware)
	s.contention.seed = maphash.MakeSeed()
	s.timeouts = &timeouts{each: s.cfg.storeTimeout, punctual: punctual}
	s.tries = &timeouts{each: timing.Try(1, s.cfg.storeTimeout), punctual: punctual}
	s.metrics = newMetrics(s.quota)
	s.probe.key = "leasehold/readyz/" + rand.Text()
	s.table = newTable(routes(s.cfg.page))
	s.metrics.beginAtZero(s.table.routes())
	s.document = newDocument(s.table.routes())
	s.http = s.newHTTP()
	s.streams.all = make(map[string]*stream)
	s.watchers = &watchers{s: s, all: make(map[string]*watcher)}
	s.openSession()
	if s.trail = s.newTrail(); s.trail != nil {
		s.start(func() {
			for timing.Sleep(s.alive, expireEvery) {
				s.trail.expire()
			}
		})
	}
	if s.cfg.page != PageOff {
		s.overview = overview.New(store, s.cfg.storeTimeout, s.cfg.log, s.start)
	}
	return s, nil
}

// openSession opens the session in which the service waits for all its clients.
func (s *Server) openSession() {
	s.session = session.New(s.store, s.cfg.log, nil)
	s.session.Through(s.verbs)
	s.terms = session.Terms{
		Drift: timing.Drift, ReleaseTimeout: s.cfg.storeTimeout, Log: s.cfg.log,
		MaxOutage: s.cfg.storeTimeout, MaxTry: s.cfg.storeTimeout,
		Policy: session.Policy{
			AskFirst: true, GoneAnswers: true,
			CallContext: func(ctx context.Context) context.Context { return s.tries.begin(ctx, time.Now()) },
		},
	}
	s.inflight = newInflight(s.session, &s.terms)
	s.opened = time.Now()
	s.session.Listen()
}

// start runs f in a goroutine that Close waits for, unless it has been called.
func (s *Server) start(f func()) bool {
	if s.session.Begin() != nil {
		return false
	}
	go func() {
		defer s.session.Leave()
		f()
	}()
	return true
}

// Routes returns all operations.
func (s *Server) Routes() []Route { return s.table.routes() }

// routes returns all routes of the interface.
func routes(mode PageMode) []route {
	var all []route
	for _, some := range [][]route{leaseRoutes(), stateRoutes(), eventRoutes(), operationRoutes(), healthRoutes(), documentRoutes()} {
		all = append(all, some...)
	}
	if mode != PageOff {
		all = append(append(all, overviewRoutes()...), pageRoutes()...)
	}
	return all
}

func documentRoutes() []route {
	return []route{{Handle: (*Server).openAPI, Route: Route{
		Method: http.MethodGet, Path: "/openapi.json", Operation: "openapi",
		Summary: "This document", Reply: map[string]any{},
		Success: []int{http.StatusOK},
	}}}
}

// OpenAPI returns the OpenAPI 3.1 document of the interface, which is served at
// /openapi.json.
func (s *Server) OpenAPI() []byte { return s.document() }

func (s *Server) openAPI(w *answer, _ *http.Request) error {
	w.send(http.StatusOK, "application/json", s.document())
	return nil
}
