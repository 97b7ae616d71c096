package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"time"
)

// Exchange is one request and its answer, as the parts of the chain that are
// not about locks see it.
type Exchange struct {
	// Route is nil if there is none for the request.
	Route *Route
	// Principal is set by authentication, and never nil afterwards.
	Principal Principal
	// Name is that of the lock, empty if the request is about none or several.
	Name    string
	LeaseID string
	// Trace is the id of the W3C trace context that the request came with, or
	// one of its own: the answer has it as X-Request-Id. A Tracer may set it.
	Trace string

	Started time.Time
	// Status and Bytes are those of the answer; Status is 0 if the client had
	// gone before.
	Status int
	Bytes  int64
	// Cause is the problem that was answered, nil for none, and Err what it
	// came from, for the log.
	Cause *Cause
	Err   error

	vars    values
	allowed []string // methods, if the path exists with others
	host    string   // the client's address
}

// Client is who asks: the principal's name, or the address of a client that has
// none.
func (x *Exchange) Client() string { return cmp.Or(x.Principal.Name(), x.host) }

// Operation is the name of the route's, "none" without a route.
func (x *Exchange) Operation() string {
	if x.Route == nil {
		return "none"
	}
	return x.Route.Operation
}

type exchangeKey struct{}

// call is what the chain makes for a request, in one piece: the exchange, the
// context that leads to it, and what takes note of the answer.
type call struct {
	context.Context // of the request, as it came
	x               Exchange
	answer          counter
	id              [1]string // a header of the answer
}

// Value implements [context.Context].
func (c *call) Value(key any) any {
	if key == (exchangeKey{}) {
		return &c.x
	}
	return c.Context.Value(key)
}

// exchangeOf returns the exchange of a request's context.
func exchangeOf(ctx context.Context) *Exchange {
	return ctx.Value(exchangeKey{}).(*Exchange)
}

// Observer is told of every exchange when it has ended. It must be quick.
type Observer func(r *http.Request, x *Exchange)

// middleware is a step of the chain.
type middleware func(next http.HandlerFunc) http.HandlerFunc

// chain puts the steps together that every request passes. The first one is
// the outermost:
//
//	observe       tells the observers: request logs, metrics, traces
//	recover       answers 500 instead of dropping the connection
//	origin        refuses what another site makes a browser send
//	limit         bounds the body
//	authenticate  finds the principal, 401 without one
//	authorize     compares its rights with the route's verb, 403 without
//	serve         the handler of the route
func (s *Server) chain() http.HandlerFunc {
	h := http.HandlerFunc(s.serve)
	for _, m := range slices.Backward([]middleware{
		s.observe, s.recover, s.origin, s.limit, s.authenticate, s.authorize,
	}) {
		h = m(h)
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Context: r.Context()}
	x := &c.x
	x.Principal, x.Started, x.Trace, x.host = everybody{}, time.Now(), traceOf(r.Header), hostOf(r)
	x.Route, x.allowed = s.table.find(r, &x.vars)
	x.Name = cmp.Or(x.vars.get("name"), x.vars.get("resourceId"))
	if s.cfg.tracer != nil {
		ctx, end := s.cfg.tracer.Request(r, x)
		defer end()
		c.Context = ctx
	}
	c.answer, c.id[0] = counter{w, x}, x.Trace
	w.Header()["X-Request-Id"] = c.id[:]
	s.handler(&c.answer, r.WithContext(c))
}

// hostOf is the address of a client without the port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// serve runs the handler of the route.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	handle := nowhere
	if x := exchangeOf(r.Context()); x.Route != nil {
		handle = x.Route.handle
	}
	if err := handle(s, w, r); err != nil {
		s.failed(w, r, err)
	}
}

// failed answers with the error of a handler.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errVanished) {
		panic(http.ErrAbortHandler) // or net/http would say 200
	}
	s.refuse(w, r, err)
}

// nowhere handles what there is no route for.
func nowhere(_ *Server, w http.ResponseWriter, r *http.Request) error {
	x := exchangeOf(r.Context())
	if len(x.allowed) == 0 {
		return newProblem(NotFound, "there is nothing at %s", r.URL.Path)
	}
	for _, method := range x.allowed {
		w.Header().Add("Allow", method)
	}
	return newProblem(NotAllowed, "%s is not among the methods of %s", r.Method, r.URL.Path)
}

// observe tells the observers how the request was answered.
func (s *Server) observe(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		running := s.metrics.begin(x)
		defer func() {
			running.Dec()
			s.metrics.observe(x)
			for _, tell := range s.cfg.observers {
				tell(r, x)
			}
		}()
		next(w, r)
	}
}

// counter takes note of what is answered.
type counter struct {
	http.ResponseWriter
	x *Exchange
}

func (c *counter) WriteHeader(status int) {
	c.x.Status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	if c.x.Status == 0 {
		c.x.Status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(b)
	c.x.Bytes += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// recover answers 500 when a handler panics.
func (s *Server) recover(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if err, ok := v.(error); v == nil || ok && errors.Is(err, http.ErrAbortHandler) {
				if v != nil {
					panic(v)
				}
				return
			}
			s.cfg.log.Error("leasehold: handler failed", "path", shorten(r.URL.Path), "panic", v, "stack", string(debug.Stack()))
			s.refuse(w, r, newProblem(Internal, "the service has failed"))
		}()
		next(w, r)
	}
}

// origin refuses what a page of another site makes a browser send: a service
// on the loopback interface is in reach of every page that its user opens.
func (s *Server) origin(next http.HandlerFunc) http.HandlerFunc {
	protection := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if err := protection.Check(r); err != nil {
			s.refuse(w, r, newProblem(Forbidden, "the request comes from a page of another site"))
			return
		}
		next(w, r)
	}
}

// limit bounds what is read of a body, and for how long.
func (s *Server) limit(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next(w, r)
			return
		}
		r.Body = &timely{ReadCloser: http.MaxBytesReader(w, r.Body, s.cfg.maxBody), control: http.NewResponseController(w), within: s.cfg.bodyTimeout}
		next(w, r)
	}
}

// timely is a body that has to arrive within a time. When it has been read to
// its end there is no deadline any more, since a deadline would look like the
// end of a client that waits.
type timely struct {
	io.ReadCloser
	control *http.ResponseController
	within  time.Duration
	began   bool
}

func (b *timely) Read(p []byte) (int, error) {
	if !b.began {
		b.began = true
		_ = b.control.SetReadDeadline(time.Now().Add(b.within)) // where there is no deadline there is none
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// authenticate finds out who asks, unless nobody need be known.
func (s *Server) authenticate(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		if s.cfg.auth == nil || x.Route != nil && x.Route.Verb == Anyone {
			next(w, r)
			return
		}
		p, err := s.cfg.auth.Authenticate(r)
		if err != nil {
			problem := newProblem(Unauthenticated, "no valid credentials were sent")
			s.refuse(w, r, problem)
			x.Err = err
			return
		}
		x.Principal = p
		next(w, r)
	}
}

// authorize compares the rights of the principal with what the route needs on
// the lock in its path. Routes about several locks ask by themselves.
func (s *Server) authorize(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		if x.Name != "" && !may(r.Context(), x.Route.Verb, x.Name) {
			s.refuse(w, r, forbidden(x.Route.Verb))
			return
		}
		next(w, r)
	}
}

// forbidden says which right is missing, and nothing about the lock.
func forbidden(verb Verb) *problem {
	return newProblem(Forbidden, "the right %q is missing for this name", verb)
}
