package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
)

func stateRoutes() []route {
	inspect := route{Handle: (*Server).inspect, Route: Route{
		Method: http.MethodGet, Path: "/v1/locks/{name}", Operation: "inspect",
		Summary: "Show the holders and the waiters of a lock", Verb: auth.Read, Reply: wire.Lock{},
		Query: []Parameter{
			{Name: "If-None-Match", Type: "string", Header: true, Description: "the ETag of an earlier answer: 304 while nothing has changed"},
			{Name: "waiters", Type: "string", Description: "false leaves the waiters out, and answers at once"},
			{Name: "Prefer", Type: "string", Header: true, Description: "wait=30 holds the 304 back for 30 seconds, or until something changes"},
		},
		Success: []int{http.StatusOK, http.StatusNotModified},
		Causes:  []*Cause{TooMany, Unsupported, Unavailable, Draining},
	}}
	inspectByKey := byKey(inspect, http.MethodGet, "/v1/locks:inspect")
	inspectByKey.Query = append([]Parameter{{Name: "name", Type: "string", Description: "the lock"}}, inspect.Query...)
	return []route{
		inspect, inspectByKey,
		{Handle: (*Server).list, Route: Route{
			Method: http.MethodGet, Path: "/v1/locks", Operation: "list",
			Summary: "List the locks that are held or waited for, page by page: each name once on a page, but possibly again on another", Verb: auth.Read, Reply: wire.Locks{},
			Query: []Parameter{
				{Name: "prefix", Type: "string", Description: "the beginning of the names"},
				{Name: "cursor", Type: "string", Description: "the cursor of the previous page"},
			},
			Success: []int{http.StatusOK},
			Causes:  []*Cause{Unsupported, Unavailable, Draining},
		}},
	}
}

// inspect shows a lock, at once or when it has changed.
func (s *Server) inspect(w *answer, r *http.Request) error {
	name, err := lockName(&w.x, r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	if r.URL.Query().Get("waiters") == "false" {
		return s.glance(w, r, name)
	}
	known := r.Header.Values("If-None-Match")
	now := s.look(answering(r), name)
	if wait := s.preferredWait(r); wait > 0 && now.err == nil && matches(known, now.etag) {
		w.Header().Set("Preference-Applied", "wait="+seconds(wait))
		if now, err = s.change(r, &w.x, name, known, wait); err != nil {
			return err
		}
		if err := s.still(&w.x, r); err != nil {
			return err
		}
	}
	if now.err != nil {
		return unread(r, now.err)
	}
	h := w.Header()
	h.Set("ETag", now.etag)
	h.Set("Cache-Control", "no-cache")
	if matches(known, now.etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	reply(w, http.StatusOK, wire.LockOf(now.Snapshot))
	return nil
}

// glance shows the holders of a lock without its waiters.
func (s *Server) glance(w *answer, r *http.Request, name string) error {
	ctx, cancel := context.WithTimeout(answering(r), s.cfg.storeTimeout)
	defer cancel()
	snap, err := driver.Glance(ctx, s.store, name)
	if errors.Is(err, errors.ErrUnsupported) {
		return newProblem(Unsupported, "the store cannot be inspected")
	}
	if err != nil {
		return unread(r, err)
	}
	snap.Key = name
	w.Header().Set("Cache-Control", "no-cache")
	reply(w, http.StatusOK, wire.LockOf(snap))
	return nil
}

// unread returns the error of a read that failed: the store is unavailable, unless the client
// has gone.
func unread(r *http.Request, err error) error {
	if errors.Is(answering(r).Err(), context.Canceled) {
		return errVanished
	}
	return timing.OfRead(err)
}

// preferredWait returns the time that the client offers to wait for a change.
func (s *Server) preferredWait(r *http.Request) time.Duration {
	n, err := strconv.ParseUint(preference(r, "wait"), 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, s.cfg.maxWait)
}

// preference returns the value of a preference in the Prefer headers (RFC 7240), or "".
func preference(r *http.Request, want string) string {
	for part := range strings.SplitSeq(strings.Join(r.Header["Prefer"], ","), ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.EqualFold(strings.TrimSpace(name), want) {
			return strings.Trim(strings.TrimSpace(text), `"`)
		}
	}
	return ""
}

// matches reports whether an If-None-Match names the tag.
func matches(known []string, etag string) bool {
	for part := range strings.SplitSeq(strings.Join(known, ","), ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}

// change waits until the lock has another etag than the known ones, or the client loses its
// right to read.
func (s *Server) change(r *http.Request, x *Exchange, name string, known []string, wait time.Duration) (sight, error) {
	leave, err := s.admit(x)
	if err != nil {
		return sight{}, err
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer s.guard(x, r, cancel)()
	changed := make(chan sight, 1)
	defer s.watchers.watch(name, func(now sight) {
		if now.err != nil || !matches(known, now.etag) {
			select {
			case changed <- now:
			default: // there is one already
			}
		}
	})()
	select {
	case now := <-changed:
		return now, nil
	case <-ctx.Done():
		if r.Context().Err() != nil {
			return sight{}, errVanished
		}
		return sight{}, cmp.Or[error](s.still(x, r), forbidden(x.Route.Verb))
	case <-time.After(wait):
	case <-s.serving.Done():
	}
	return s.look(ctx, name), nil
}

// list shows a page of the names in use.
func (s *Server) list(w *answer, r *http.Request) error {
	store, ok := driver.As[driver.Inspector](s.store)
	if !ok {
		return newProblem(Unsupported, "the store cannot be listed")
	}
	q := r.URL.Query()
	prefix, cursor := q.Get("prefix"), q.Get("cursor")
	if err := cmp.Or(check.Text("prefix", prefix, 0, check.MaxKey), check.Text("cursor", cursor, 0, 4*check.MaxKey)); err != nil {
		return err
	}
	if !w.x.may(auth.Read, prefix) {
		return forbidden(auth.Read)
	}
	ctx, cancel := context.WithTimeout(answering(r), s.cfg.storeTimeout)
	defer cancel()
	keys, next, err := store.List(ctx, prefix, cursor)
	if err != nil {
		return unread(r, err)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if keys == nil {
		keys = []string{}
	}
	reply(w, http.StatusOK, wire.Locks{Keys: keys, Cursor: next})
	return nil
}
