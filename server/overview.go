package server

import (
	"context"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/api"
	"github.com/leasehold-go/leasehold/server/internal/check"
	"github.com/leasehold-go/leasehold/server/internal/overview"
)

func overviewRoutes() []route {
	return []route{
		{Handle: (*Server).overviewLocks, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview", Operation: "overview",
			Summary: "Show a page of the locks that the caller may read, with their holders", Verb: auth.Read,
			Query: []Parameter{
				{Name: "prefix", Type: "string", Description: "the beginning of the names"},
				{Name: "cursor", Type: "string", Description: "the cursor of the previous view"},
			},
			Reply: overview.View{}, Success: []int{http.StatusOK}, Causes: []*Cause{Unsupported, Unavailable, Draining},
		}},
		{Handle: (*Server).overviewLock, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/locks/{name}", Operation: "overviewLock",
			Summary: "Show a lock as it was at most a second ago, and whether the page may offer to break it", Verb: auth.Read,
			Reply: One{}, Success: []int{http.StatusOK}, Causes: []*Cause{Unsupported, Unavailable},
		}},
		{Handle: (*Server).overviewHealth, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/health", Operation: "overviewHealth",
			Summary: "Show the state of the store", Verb: auth.Read,
			Reply: overview.Vitals{}, Success: []int{http.StatusOK},
		}},
	}
}

// One is a lock for the page.
type One struct {
	overview.Row

	// MayBreak is true if the page may offer the caller to break a lease.
	MayBreak bool `json:"mayBreak"`
}

// viewFor bounds the wait for the store's answers about the locks of one view.
const viewFor = 2 * time.Second

// viewing returns the context of an answer to the page, or a problem if the store cannot be
// inspected.
func (s *Server) viewing(w *answer, r *http.Request) (context.Context, context.CancelFunc, error) {
	if _, ok := driver.As[driver.Inspector](s.store); !ok {
		return nil, nil, api.NewProblem(Unsupported, "the store cannot be inspected")
	}
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(answering(r), viewFor)
	return ctx, cancel, nil
}

func (s *Server) overviewLocks(w *answer, r *http.Request) error {
	q := r.URL.Query()
	prefix, cursor := q.Get("prefix"), q.Get("cursor")
	if err := check.First(check.Text("prefix", prefix, 0, check.MaxName), check.Text("cursor", cursor, 0, 8*check.MaxName)); err != nil {
		return err
	}
	ctx, cancel, err := s.viewing(w, r)
	if err != nil {
		return err
	}
	defer cancel()
	v, err := s.overview.Locks(ctx, prefix, cursor, func(key string) bool { return w.x.may(auth.Read, key) })
	if err != nil {
		return unread(r, err)
	}
	v.Principal, v.Mode = w.x.Principal.Name(), "read"
	if s.cfg.page == PageFull {
		v.Mode = "full"
	}
	reply(w, http.StatusOK, &v)
	return nil
}

func (s *Server) overviewLock(w *answer, r *http.Request) error {
	name, err := lockName(&w.x, "")
	if err != nil {
		return err
	}
	ctx, cancel, err := s.viewing(w, r)
	if err != nil {
		return err
	}
	defer cancel()
	row := s.overview.Lock(ctx, name)
	if !row.Looked {
		return api.NewProblem(Unavailable, "the store did not answer in time").After(api.RetryLater)
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
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(answering(r), viewFor)
	defer cancel()
	h := s.overview.Vitals(ctx)
	h.Store, h.Since = s.cfg.storeName, s.opened
	reply(w, http.StatusOK, &h)
	return nil
}
