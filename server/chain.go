package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
)

// Exchange is one request and its answer, for the parts of the chain that do not depend on
// locks.
type Exchange struct {
	// Route is nil if no route matches the request.
	Route *Route
	// Principal is set by authentication, and never nil afterwards.
	Principal auth.Principal
	// Name is the name of the lock, empty if the request is not about one lock.
	Name    string
	LeaseID string
	// Trace is the id of the W3C trace context of the request, or else a new id. The answer has
	// it as X-Request-Id. A Tracer may set it.
	Trace string

	Started time.Time
	// Status and Bytes describe the answer; Status is 0 if the client had gone before.
	Status int
	Bytes  int64
	// Cause is the problem that was answered, or nil, and Err the error behind it, for the log.
	Cause *Cause
	Err   error

	id   string // of the lease in the path
	host string // the client's address
}

// Client returns the name of the principal, or the address of the client if it has no name.
func (x *Exchange) Client() string { return cmp.Or(x.Principal.Name(), x.host) }

// Operation returns the name of the route's operation, "none" without a route.
func (x *Exchange) Operation() string {
	if x.Route == nil {
		return "none"
	}
	return x.Route.Operation
}

// answer is the state of the chain for one request: the exchange, and a response that records
// the answer in it. It is not reused, because observers may keep the exchange.
type answer struct {
	http.ResponseWriter
	x      Exchange
	within time.Duration // the time to send it; 0 if the connection bounds that
}

func (w *answer) WriteHeader(status int) {
	w.x.Status = status
	if w.within > 0 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.within))
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(b []byte) (int, error) {
	if w.x.Status == 0 {
		w.x.Status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.x.Bytes += int64(n)
	return n, err
}

// Unwrap is for [http.ResponseController].
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Observer is called at the end of every exchange. It must be quick.
type Observer func(r *http.Request, x *Exchange)

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := connOf(r.Context()); c != nil {
		s.intake.silent.Delete(c)
	}
	if s.isLeaving() {
		w.Header().Set("Connection", "close") // a request on a connection that is closed later might be lost
	}
	a := &answer{ResponseWriter: w}
	if r.ProtoMajor == 2 { // every stream moves the write deadline of the connection
		a.within = writeTimeout
	}
	x := &a.x
	x.Principal, x.Started, x.Trace, x.host = everybody{}, time.Now(), traceOf(r.Header), hostOf(r)
	handle := handler((*Server).nowhere)
	if e, vars := s.table.find(r); e != nil {
		x.Route, x.Name, x.id, handle = &e.Route, vars[0], vars[1], e.Handle
	}
	if s.cfg.tracer != nil {
		ctx, end := s.cfg.tracer.Request(r, x)
		defer end()
		r = r.WithContext(ctx)
	}
	w.Header().Set("X-Request-Id", x.Trace)
	s.run(a, r, handle)
}

// run passes a request through the chain. The first error of a step is the answer:
//
//	observe       calls the observers at the end: request logs, metrics, traces
//	recover       answers 500 instead of dropping the connection
//	limit         bounds the body; 503 on a connection that is one too many
//	origin        refuses requests that another site makes a browser send
//	authenticate  finds the principal, 401 without one
//	authorize     compares its rights with the route's verb, 403 without
//	discard       reads a body that has no meaning
//	handle        the handler of the route
func (s *Server) run(w *answer, r *http.Request, handle handler) {
	s.metrics.begin(&w.x)
	defer s.observe(w, r)
	defer s.recover(w, r)
	r = s.limited(w, r)
	for _, step := range [...]handler{
		(*Server).limit, (*Server).origin, (*Server).authenticate, (*Server).authorize, (*Server).discard, handle,
	} {
		if err := step(s, w, r); err != nil {
			w.failed(err)
			return
		}
	}
}

// hostOf returns the address of a client without the port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// discard reads a body that has no meaning. At its end the read deadline is removed, which would
// otherwise end a wait.
func (s *Server) discard(w *answer, r *http.Request) error {
	if w.x.Route == nil || w.x.Route.Body != nil || r.Body == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, r.Body); errors.Is(err, os.ErrDeadlineExceeded) {
		return errVanished
	}
	return nil
}

// failed answers with the error of a step.
func (w *answer) failed(err error) {
	if errors.Is(err, errVanished) {
		panic(http.ErrAbortHandler) // net/http would answer 200 otherwise
	}
	w.refuse(err)
}

// nowhere handles requests without a route.
func (s *Server) nowhere(w *answer, r *http.Request) error {
	allowed := s.table.allowed(r)
	if len(allowed) == 0 {
		if meant := slashed(r.URL); meant != "" {
			return newProblem(NotFound, "there is nothing at %s: a proxy may have decoded the name, which the body may have instead; a slash in a name is sent as %%2F, as in %s", r.URL.EscapedPath(), meant)
		}
		if i := strings.Index(r.URL.Path, "/v1/"); i > 0 {
			return newProblem(NotFound, "there is nothing at %s: a proxy before the service has to remove %q", r.URL.Path, r.URL.Path[:i])
		}
		return newProblem(NotFound, "there is nothing at %s", r.URL.Path)
	}
	for _, method := range allowed {
		w.Header().Add("Allow", method)
	}
	return newProblem(NotAllowed, "%s is not among the methods of %s", r.Method, r.URL.Path)
}

// observe calls the observers after the answer.
func (s *Server) observe(w *answer, r *http.Request) {
	s.metrics.end(&w.x)
	for _, tell := range s.cfg.observers {
		tell(r, &w.x)
	}
}

// recover answers 500 when a step panics.
func (s *Server) recover(w *answer, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	s.cfg.log.Error("leasehold: handler failed", "path", oneline.Shorten(r.URL.Path), "panic", v, "stack", string(debug.Stack()))
	w.refuse(newProblem(Internal, "the service has failed"))
}

var protection = http.NewCrossOriginProtection()

// origin refuses requests that a page of another site makes a browser send. Every page that a
// user opens can reach a service on the loopback interface, also under the name of the page's
// own site.
func (s *Server) origin(_ *answer, r *http.Request) error {
	if protection.Check(r) != nil {
		return newProblem(Forbidden, "the request comes from a page of another site")
	}
	if s.isForeignHost(r) {
		return newProblem(Forbidden, "without authentication only localhost, IP addresses and the names of --allowed-host are served, not the host %q", oneline.Shorten(r.Host))
	}
	return nil
}

// limited returns the request with a body that is bounded in size, and in the time in which it
// is read. This includes the bodies of requests that are refused, which net/http reads. It
// changes a copy, since the request is not ours.
func (s *Server) limited(w *answer, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	body := &timely{ReadCloser: http.MaxBytesReader(w, r.Body, s.cfg.maxBody), control: http.NewResponseController(w)}
	_ = body.control.SetReadDeadline(time.Now().Add(s.cfg.bodyTimeout)) // ignores connections without deadlines
	limited := *r
	limited.Body = body
	return &limited
}

// timely is a body with a read deadline. The deadline is removed at the end of the body, because
// net/http would otherwise report it as the end of a client that waits.
type timely struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timely) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// authenticate sets the principal, if the route needs one.
func (s *Server) authenticate(w *answer, r *http.Request) error {
	x := &w.x
	if s.cfg.auth == nil || x.Route != nil && x.Route.Verb == auth.Anyone {
		return nil
	}
	p, err := s.cfg.auth.Authenticate(r)
	if err != nil {
		return stranger{err}
	}
	x.Principal = p
	return nil
}

// stranger is the error of an authenticator. Its text is only for the log.
type stranger struct{ error }

// Unwrap also returns the problem that the client receives.
func (s stranger) Unwrap() []error { return []error{errStranger, s.error} }

var errStranger = newProblem(Unauthenticated, "no valid credentials were sent")

// again authenticates a request again whose answer takes long: its credentials, or rights of its
// principal, may have been revoked since.
func (s *Server) again(x *Exchange, r *http.Request) error {
	if s.cfg.auth == nil {
		return nil
	}
	p, err := s.authenticated(r, x.Principal.Name())
	if err != nil {
		return fmt.Errorf("%w: %w", newProblem(Unauthenticated, "the credentials are not valid any more"), err)
	}
	x.Principal = p
	return nil
}

// still authenticates a request again, and compares the rights with the verb of its route.
func (s *Server) still(x *Exchange, r *http.Request) error {
	err := s.again(x, r)
	if err == nil && !x.may(x.Route.Verb, x.Name) {
		err = forbidden(x.Route.Verb)
	}
	return err
}

// authenticated returns the present principal of a request. It refuses credentials that belong
// to another principal now, since the request was begun for the first one.
func (s *Server) authenticated(r *http.Request, name string) (auth.Principal, error) {
	p, err := s.cfg.auth.Authenticate(r)
	if err == nil && p.Name() != name {
		err = errAnother
	}
	return p, err
}

var errAnother = errors.New("the credentials belong to another principal now")

// guard calls lost when the principal of a request has lost the right of its route, so that its
// wait ends. It compares the rights at each heartbeat, until done is called.
func (s *Server) guard(x *Exchange, r *http.Request, lost context.CancelFunc) (done func()) {
	if s.cfg.auth == nil {
		return func() {}
	}
	name, verb, lock := x.Principal.Name(), x.Route.Verb, x.Name
	var mu sync.Mutex
	var beat *time.Timer // nil after done
	compare := func() {
		if p, err := s.authenticated(r, name); err != nil || !p.May(verb, lock) {
			lost()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if beat != nil {
			beat.Reset(heartbeatEvery)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	beat = time.AfterFunc(heartbeatEvery, func() { s.start(compare) }) // Close waits for it
	return func() {
		mu.Lock()
		defer mu.Unlock()
		beat.Stop()
		beat = nil // a timer that is left would keep the request for a heartbeat
	}
}

// authorize compares the rights of the principal with the verb of the route, for the lock in the
// path. Handlers of routes about several locks do that themselves.
func (s *Server) authorize(w *answer, _ *http.Request) error {
	if x := &w.x; x.Name != "" && !x.may(x.Route.Verb, x.Name) {
		return forbidden(x.Route.Verb)
	}
	return nil
}

// forbidden returns the problem of a missing right. It reveals nothing about the lock.
func forbidden(verb auth.Verb) *problem {
	return newProblem(Forbidden, "the right %q is missing for this name", verb)
}

// everybody is the principal without authentication. It has all rights.
type everybody struct{}

func (everybody) Name() string               { return "" }
func (everybody) May(auth.Verb, string) bool { return true }

// may reports whether the principal of a request has a right.
func (x *Exchange) may(verb auth.Verb, name string) bool {
	return verb == auth.Anyone || x.Principal.May(verb, name)
}

// refuse answers with the problem of err. Details about the store appear only in the log.
func (w *answer) refuse(err error) {
	p := problemOf(err)
	w.x.Cause, w.x.Err = p.Cause, err
	if by := (stranger{}); errors.As(err, &by) {
		w.x.Err = by.error
	}
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", seconds(p.RetryAfter.Duration()))
	}
	if p.Cause == Unauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.send(p.Status, wire.ProblemMedia, textOf(&p.Problem))
}

// reply answers with JSON.
func reply(w *answer, status int, body any) {
	w.send(status, "application/json", textOf(body))
}

func textOf(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // every body can be encoded
	}
	return append(text, '\n')
}

// send answers with a body in one piece, with its length.
func (w *answer) send(status int, media string, text []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the context ends if the client has gone
}

// gone reports whether the client has gone.
func gone(ctx context.Context) bool { return ctx.Err() != nil }
