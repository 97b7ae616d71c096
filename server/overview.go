package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/api"
	"github.com/leasehold-go/leasehold/server/internal/check"
	"github.com/leasehold-go/leasehold/server/internal/overview"
)

// whichLocks are the parameters of a view.
var whichLocks = []Parameter{
	{Name: "prefix", Type: "string", Description: "what the names begin with"},
	{Name: "search", Type: "string", Description: "what occurs in a name, a lease id or an owner, in whatever case"},
	{Name: "sort", Type: "string", Description: "name, held, waiters, wait, lease or flags; name unless given"},
	{Name: "order", Type: "string", Description: "down turns the order round"},
	{Name: "flagged", Type: "string", Description: "true leaves out the locks about which nothing is odd"},
	{Name: "offset", Type: "integer", Description: "how many locks are left out at the beginning"},
	{Name: "limit", Type: "integer", Description: "how many locks are shown, 200 at most; 50 unless given"},
}

func overviewRoutes() []route {
	return []route{
		{Handle: (*Server).overviewLocks, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview", Operation: "overview",
			Summary: "Show a part of all locks with their holders, and what is odd about them: of those that the caller may read", Verb: auth.Read,
			Query: whichLocks, Reply: overview.View{}, Success: []int{http.StatusOK}, Causes: []*Cause{Unsupported},
		}},
		{Handle: (*Server).overviewLock, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/locks/{name}", Operation: "overviewLock",
			Summary: "Show a lock, what is odd about it, and what has happened to it", Verb: auth.Read,
			Reply: overview.One{}, Success: []int{http.StatusOK}, Causes: []*Cause{Unsupported, Unavailable},
		}},
		{Handle: (*Server).overviewHealth, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/health", Operation: "overviewHealth",
			Summary: "Show how the store and the service have been for an hour", Verb: auth.Read,
			Reply: overview.Vitals{}, Success: []int{http.StatusOK},
		}},
		{Handle: (*Server).overviewEvents, Route: Route{
			Method: http.MethodGet, Path: "/v1/overview/events", Operation: "overviewEvents",
			Summary: "Stream one of the three, again when it has changed", Verb: auth.Read,
			Query: append([]Parameter{
				{Name: "show", Type: "string", Description: "locks, lock or health; locks unless given. The events are called view, lock and health"},
				{Name: "name", Type: "string", Description: "the lock, with show=lock"},
			}, whichLocks...),
			Media: "text/event-stream", Success: []int{http.StatusOK}, Causes: []*Cause{TooMany, Unsupported},
		}},
	}
}

// reader is a principal that looks at an overview. Equal ones share their views.
type reader struct{ auth.Principal }

func (r reader) MayRead(name string) bool { return r.May(auth.Read, name) }

// viewFor is how long an answer is held back until everything in it has been looked at.
const viewFor = 2 * time.Second

// vitalsEvery is how often a page is told how things are.
const vitalsEvery = 2 * time.Second

// streamFor bounds how long a stream goes on. A view follows its principal as soon as that
// one is not equal any more: for so long the numbers may be by former rights where a
// principal's rights change while it stays equal to itself.
const streamFor = 5 * time.Minute

// queryOf reads which locks a page wants to see.
func queryOf(q url.Values) (overview.Query, error) {
	v := overview.Query{
		Prefix: q.Get("prefix"), Search: q.Get("search"), Sort: q.Get("sort"),
		Down: q.Get("order") == "down", Flagged: q.Get("flagged") == "true", Limit: 50,
	}
	columns := []string{"", "name", "held", "waiters", "wait", "lease", "flags"}
	if !slices.Contains(columns, v.Sort) {
		return v, api.NewProblem(Invalid, "sort is none of name, held, waiters, wait, lease, flags")
	}
	err := check.First(check.Text("prefix", v.Prefix, 0, check.MaxName), check.Text("search", v.Search, 0, check.MaxName))
	for name, to := range map[string]*int{"offset": &v.Offset, "limit": &v.Limit} {
		if text := q.Get(name); text != "" && err == nil {
			n, bad := strconv.ParseUint(text, 10, 31)
			if bad != nil {
				return v, api.NewProblem(Invalid, "%s is not a whole number", name)
			}
			*to = int(n)
		}
	}
	return v, err
}

// surveyable refuses where the store cannot be looked into.
func (s *Server) surveyable() error {
	if !s.overview.Supported() {
		return api.NewProblem(Unsupported, "the store cannot be looked into")
	}
	return nil
}

func (s *Server) overviewLocks(w *answer, r *http.Request) error {
	q, err := queryOf(r.URL.Query())
	if err != nil {
		return err
	}
	if err := s.surveyable(); err != nil {
		return err
	}
	p := s.overview.Open(q, reader{w.x.Principal})
	defer p.Close()
	ctx, cancel := s.brief(r.Context())
	defer cancel()
	v := p.Whole(ctx)
	s.sign(&v, &w.x)
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusOK, &v)
	return nil
}

// brief ends when an answer has been held back for long enough, or the service is about
// to end.
func (s *Server) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, viewFor)
	detach := context.AfterFunc(s.serving, cancel)
	return ctx, func() {
		detach()
		cancel()
	}
}

// sign tells who looks, and whether the page may offer to break.
func (s *Server) sign(v *overview.View, x *Exchange) {
	v.Principal, v.Mode = x.Principal.Name(), "read"
	if s.cfg.page == PageFull {
		v.Mode = "full"
	}
	if v.Keys == nil {
		v.Keys, v.Branches, v.Store = []string{}, []overview.Branch{}, []overview.Flag{}
	}
}

// signOne tells what depends on who looks.
func (s *Server) signOne(one *overview.One, x *Exchange, name string) {
	one.MayBreak = s.mayBreak(x, name)
	one.Store = s.overview.StoreFlags(x.may(auth.Read, ""))
}

func (s *Server) mayBreak(x *Exchange, name string) bool {
	_, can := driver.As[driver.Breaker](s.store)
	return can && s.cfg.page == PageFull && x.may(auth.Break, name)
}

func (s *Server) overviewLock(w *answer, r *http.Request) error {
	name, err := lockName(&w.x, "")
	if err != nil {
		return err
	}
	if err := s.surveyable(); err != nil {
		return err
	}
	p := s.overview.Follow(name)
	defer p.Close()
	ctx, cancel := s.brief(r.Context())
	defer cancel()
	one, err := p.Next(ctx)
	if err != nil {
		return api.NewProblem(Unavailable, "the store has not shown the lock in time").After(api.RetryLater)
	}
	s.signOne(&one, &w.x, name)
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusOK, &one)
	return nil
}

// overviewHealth is for those who may read all locks: it names servers.
func (s *Server) overviewHealth(w *answer, _ *http.Request) error {
	if !w.x.may(auth.Read, "") {
		return forbidden(auth.Read)
	}
	h := s.overview.Vitals(time.Now())
	h.Store = s.cfg.storeName
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusOK, &h)
	return nil
}

// overviewEvents streams what a page shows until the client goes.
func (s *Server) overviewEvents(w *answer, r *http.Request) error {
	q := r.URL.Query()
	show, name := q.Get("show"), q.Get("name")
	which, err := queryOf(q)
	switch show {
	case "", "locks":
	case "health":
		if err == nil && !w.x.may(auth.Read, "") {
			err = forbidden(auth.Read)
		}
	case "lock":
		if err = check.First(err, check.Text("name", name, 1, check.MaxName)); err == nil && !w.x.may(auth.Read, name) {
			err = forbidden(auth.Read)
		}
	default:
		err = api.NewProblem(Invalid, "show is none of locks, lock, health")
	}
	if err != nil {
		return err
	}
	if err := s.surveyable(); err != nil {
		return err
	}
	leave, err := s.admit(&w.x)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), streamFor)
	defer cancel()
	defer context.AfterFunc(s.serving, cancel)()
	next, allow, end := s.shows(show, name, which, &w.x)
	defer end()
	sendAll(ctx, w, next, func(e *event) error {
		if err := s.again(&w.x, r); err != nil {
			return err
		}
		return allow(e)
	})
	return nil
}

// shows returns what yields the next event of a stream, and what judges it by the rights
// that its principal has since: it refuses the stream, or changes the event.
func (s *Server) shows(show, name string, which overview.Query, x *Exchange) (next func(context.Context) (event, error), allow func(*event) error, end func()) {
	switch show {
	case "lock":
		p := s.overview.Follow(name)
		next = func(ctx context.Context) (event, error) {
			one, err := p.Next(ctx)
			return event{"lock", &one}, err
		}
		return next, func(e *event) error {
			if one, ok := e.data.(*overview.One); ok {
				s.signOne(one, x, name)
			}
			return readable(x, []string{name})
		}, p.Close
	case "health":
		first := true
		return func(ctx context.Context) (event, error) {
			if !first {
				select {
				case <-time.After(vitalsEvery):
				case <-ctx.Done():
					return event{}, ctx.Err()
				}
			}
			first = false
			h := s.overview.Vitals(time.Now())
			h.Store = s.cfg.storeName
			return event{"health", &h}, nil
		}, func(*event) error { return readable(x, []string{""}) }, s.overview.VitalsPage()
	}
	p := s.overview.Open(which, reader{x.Principal})
	var keys []string
	told := func(v overview.View) event {
		keys = v.Keys
		s.sign(&v, x)
		return event{"view", &v}
	}
	next = func(ctx context.Context) (event, error) {
		v, err := p.Next(ctx)
		if err != nil {
			return event{}, err
		}
		return told(v), nil
	}
	return next, func(e *event) error {
		if err := readable(x, keys); err != nil {
			return err
		}
		if p.As(reader{x.Principal}) && e.name != "" {
			*e = event{}
			if v, changed := p.Again(); changed {
				*e = told(v)
			}
		}
		return nil
	}, p.Close
}

// sendAll sends one event after the other, and signs of life between them, until ctx ends
// or the client has no right to them. Rights may change the event; one without a name is
// not sent.
func sendAll(ctx context.Context, w *answer, next func(context.Context) (event, error), rights func(*event) error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy holds the events back
	w.WriteHeader(http.StatusOK)
	var e event
	l := listening{w: w, control: http.NewResponseController(w), rights: func() error { return rights(&e) }}
	defer func() { _ = l.control.SetWriteDeadline(time.Time{}) }() // the connection may go on
	if l.write([]byte(":\n\n")) != nil {
		return
	}
	for {
		var err error
		if e, err = nextOr(ctx, heartbeatEvery, next); err != nil {
			e = event{}
		}
		switch {
		case ctx.Err() != nil || l.may() != nil:
			return
		case e.name == "":
			err = l.write([]byte(":\n\n"))
		default:
			var b bytes.Buffer
			data, bad := json.Marshal(e.data)
			if bad != nil {
				return
			}
			fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.name, data)
			err = l.write(b.Bytes())
		}
		if err != nil {
			return
		}
	}
}

// nextOr waits for the next event, but not for longer than d.
func nextOr(ctx context.Context, d time.Duration, next func(context.Context) (event, error)) (event, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return next(ctx)
}

// Notes of what requests did, for the overview and the audit log. Without these they
// cost nothing.

func (a *acquireCall) note() {
	a.s.trail.acquired(a.x, &a.req, &a.got.Reply, time.Now())
	o := a.s.overview
	if o == nil {
		return
	}
	switch now := time.Now(); {
	case a.got.State == driver.Granted && !a.got.Replayed:
		o.Granted(a.req.Key, a.req.ID, a.req.Owner, a.x.Started, now, a.waited)
	case a.got.State == driver.Queued:
		o.Waits(a.req.Key, a.req.ID, a.req.Owner, now)
	}
}

func (s *Server) noteRenewal(about *followed, ref *driver.Ref, got *driver.Reply) {
	s.metrics.renewed(got, nil)
	s.trail.renewed(about, ref, got, time.Now())
	if s.overview == nil {
		return
	}
	switch got.State {
	case driver.Granted:
		s.overview.Renewed(ref.Key, ref.ID, time.Now())
	case driver.Gone:
		if !got.Replayed {
			s.overview.Lost(ref.Key, ref.ID, got.Broken, got.Reason, time.Now())
		}
	}
}

func (s *Server) noteRelease(x *Exchange, about *followed, ref *driver.Ref, got *driver.Reply) {
	s.trail.released(about, got, time.Now())
	if s.overview == nil {
		return
	}
	if got.State == driver.Gone {
		if !got.Replayed {
			s.overview.Lost(ref.Key, ref.ID, got.Broken, got.Reason, time.Now())
		}
		return
	}
	s.overview.Released(ref.Key, ref.ID, got.State, x.Started, time.Now())
}

// noteBreak tells the operator, too: a break is an act of somebody.
func (s *Server) noteBreak(x *Exchange, about *followed, name string, b *wire.Break, got *driver.Reply) {
	s.cfg.log.Warn("broken by force", "name", name, "lease", b.LeaseID, "client", x.Client(), "reason", b.Reason, "trace", x.Trace)
	s.trail.broken(about, x.Client(), b.Reason, got.State)
	if s.overview != nil {
		s.overview.Broken(name, b.LeaseID, x.Client(), b.Reason, got.State, x.Started, time.Now())
	}
}

func (s *Server) noteRefusal(x *Exchange) {
	if s.overview != nil && x.Cause == Mismatch && x.Name != "" {
		s.overview.Mismatched(x.Name, time.Now())
	}
}
