package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/overview"
)

func overviewRoutes() []route {
	return []route{
		{Handle: (*Server).overviewLocks, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview", Operation: "overview",
			Summary: "Show a page of the locks that the caller may read, with their holders", Verb: auth.Read,
			Query: []Parameter{
				{Name: "prefix", Type: "string", Description: "the beginning of the names"},
				{Name: "cursor", Type: "string", Description: "the cursor of the previous view, of the same principal, prefix and replica; any other shows the first page"},
			},
			Reply: overview.View{}, Success: []int{http.StatusOK}, Causes: []*Cause{Unsupported, Unavailable, Draining, TooMany},
		}},
		{Handle: (*Server).overviewLock, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/lock", Operation: "overviewLock",
			Summary: "Show a lock as it was at most a second ago, and whether the page may offer to break it", Verb: auth.Read,
			Query: []Parameter{{Name: "name", Type: "string", Description: "the lock"}},
			Reply: One{}, Success: []int{http.StatusOK}, Causes: []*Cause{Mismatch, Unsupported, Unavailable, Draining, TooMany},
		}},
		{Handle: (*Server).overviewHealth, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/health", Operation: "overviewHealth",
			Summary: "Show how the store is", Verb: auth.Read,
			Reply: overview.Vitals{}, Success: []int{http.StatusOK}, Causes: []*Cause{TooMany},
		}},
	}
}

// One is a lock for the page.
type One struct {
	overview.Row

	// MayBreak is true if the page may offer the caller to break a lease.
	MayBreak bool `json:"mayBreak"`
}

const (
	// viewFor bounds how long an answer is held back until the store has shown all its locks.
	viewFor = 2 * time.Second
	// viewsEach bounds the requests of a client that are held back at a time. A page has three
	// at most.
	viewsEach = 4
)

// viewing returns the context of an answer to the page, and what ends it.
func (s *Server) viewing(w *answer, r *http.Request) (context.Context, func(), error) {
	client := w.x.Client()
	if err := s.views.enter(client, ""); err != nil {
		return nil, nil, err
	}
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(answering(r), viewFor)
	return ctx, func() {
		cancel()
		s.views.leave(client, "")
	}, nil
}

// inspects returns a problem if the store cannot be looked into.
func (s *Server) inspects() error {
	if _, ok := driver.As[driver.Inspector](s.store); !ok {
		return newProblem(Unsupported, "the store cannot be looked into")
	}
	return nil
}

// unseen is why the page is not shown a lock or a list.
func unseen(r *http.Request, err error) error {
	err = unread(r, err)
	switch {
	case errors.Is(err, overview.ErrBusy):
		return newProblem(Overloaded, "%v", overview.ErrBusy).After(retryLater)
	case errors.Is(err, overview.ErrDefect):
		return newProblem(Internal, "%v", overview.ErrDefect)
	}
	return err
}

func (s *Server) overviewLocks(w *answer, r *http.Request) error {
	q := r.URL.Query()
	prefix, cursor := q.Get("prefix"), q.Get("cursor")
	if err := cmp.Or(check.Text("prefix", prefix, 0, check.MaxKey), check.Text("cursor", cursor, 0, 8*check.MaxKey), s.inspects()); err != nil {
		return err
	}
	ctx, cancel, err := s.viewing(w, r)
	if err != nil {
		return err
	}
	defer cancel()
	v, err := s.overview.Locks(ctx, w.x.Principal.Name(), prefix, cursor, func(key string) bool { return w.x.may(auth.Read, key) })
	if err != nil {
		return unseen(r, err)
	}
	v.Principal, v.Mode = w.x.Principal.Name(), "read"
	if s.cfg.page == PageFull {
		v.Mode = "full"
	}
	reply(w, http.StatusOK, &v)
	return nil
}

func (s *Server) overviewLock(w *answer, r *http.Request) error {
	name, err := lockName(&w.x, r.URL.Query().Get("name"))
	if err := cmp.Or(err, s.inspects()); err != nil {
		return err
	}
	ctx, cancel, err := s.viewing(w, r)
	if err != nil {
		return err
	}
	defer cancel()
	row, err := s.overview.Lock(ctx, name)
	if err != nil {
		return unseen(r, err)
	}
	_, can := driver.As[driver.Breaker](s.store)
	reply(w, http.StatusOK, &One{row, can && s.cfg.page == PageFull && w.x.may(auth.Break, name)})
	return nil
}

// overviewHealth needs the right to read all locks, because it names servers.
func (s *Server) overviewHealth(w *answer, r *http.Request) error {
	if !w.x.may(auth.Read, "") {
		return forbidden(auth.Read)
	}
	ctx, cancel, err := s.viewing(w, r)
	if err != nil {
		return err
	}
	defer cancel()
	h := s.overview.Vitals(ctx)
	h.Store, h.Since = s.cfg.storeName, s.opened
	reply(w, http.StatusOK, &h)
	return nil
}
