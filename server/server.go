package server

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"github.com/leasehold-go/leasehold/driver"
)

// Server serves the locks of one store. It is an [http.Handler], safe for
// concurrent use.
type Server struct {
	store   driver.Driver
	cfg     config
	table   table
	handler http.Handler
	http    *http.Server
	desk    *desk

	lookouts *lookouts
	quota    *quota
	metrics  *metrics
	probe    *probe

	draining chan struct{} // closed when the end has begun
	closing  sync.Once
	mu       sync.Mutex // guards the closing of draining, and TLSConfig
}

// New returns the service of a store. It does not take charge of the store,
// which is closed after the service. The service listens for the store's hints
// from now on: Close ends that.
func New(store driver.Driver, opts ...Option) (*Server, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("server: nil store: %w", driver.ErrInvalid)
	}
	s := &Server{store: store, cfg: defaults(), draining: make(chan struct{})}
	var errs []error
	for _, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("nil option: %w", driver.ErrInvalid))
			continue
		}
		errs = append(errs, o(&s.cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.quota = newQuota(s.cfg.perClient, s.cfg.perKey)
	s.metrics = newMetrics(s.quota)
	s.probe = newProbe(store, s.cfg.storeTimeout)
	s.table = newTable(routes())
	s.handler = s.chain()
	s.http = s.newHTTP()
	s.desk = newDesk(s)
	s.lookouts = &lookouts{s: s, all: make(map[string]*lookout)}
	s.desk.open()
	return s, nil
}

// Routes returns all operations.
func (s *Server) Routes() []Route { return append([]Route(nil), s.table...) }

// routes is the whole interface.
func routes() []Route {
	var all []Route
	for _, some := range [][]Route{leaseRoutes(), stateRoutes(), eventRoutes(), healthRoutes()} {
		all = append(all, some...)
	}
	return all
}
