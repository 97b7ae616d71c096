package server

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/leasehold-go/leasehold/driver"
)

// Server serves the locks of one store. It is an [http.Handler], safe for
// concurrent use.
type Server struct {
	store   driver.Driver
	cfg     config
	table   table
	handler http.Handler
}

// New returns the service of a store. It does not take charge of the store,
// which is closed after the service.
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
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.table = newTable(routes())
	s.handler = s.chain()
	return s, nil
}

// Routes returns all operations.
func (s *Server) Routes() []Route { return append([]Route(nil), s.table...) }

// routes is the whole interface.
func routes() []Route {
	var all []Route
	for _, some := range [][]Route{leaseRoutes(), healthRoutes()} {
		all = append(all, some...)
	}
	return all
}
