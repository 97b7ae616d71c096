package server

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/leasehold-go/leasehold/server/auth"
)

// guards are the requests whose answers are held back. Their rights are compared again at
// each heartbeat, so that a principal that lost them does not wait on.
type guards struct {
	mu  sync.Mutex
	all map[*guard]struct{}
}

// guard is one request whose answer is held back.
type guard struct {
	r    *http.Request
	name string // of the principal
	verb auth.Verb
	lock string
	lost context.CancelFunc
}

// guard calls lost when the principal of a request has lost the right of its route, until
// done is called.
func (s *Server) guard(x *Exchange, r *http.Request, lost context.CancelFunc) (done func()) {
	if s.cfg.auth == nil {
		return func() {}
	}
	g := &guard{r, x.Principal.Name(), x.Route.Verb, x.Name, lost}
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	s.guards.all[g] = struct{}{}
	return func() {
		s.guards.mu.Lock()
		defer s.guards.mu.Unlock()
		delete(s.guards.all, g)
	}
}

// compareRights ends the waits of principals that have lost their rights.
func (s *Server) compareRights() {
	for _, g := range s.guards.now() {
		if p, err := s.authenticated(g.r, g.name); err != nil || !p.May(g.verb, g.lock) {
			g.lost()
		}
	}
}

func (g *guards) now() []*guard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.all))
}
