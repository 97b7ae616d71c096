package server

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/server/auth"
)

// Route is one operation of the interface. Requests are matched against the table of all routes,
// and a test compares the OpenAPI document with it.
type Route struct {
	Method string
	// Path is a template as in OpenAPI: a segment {x} matches one segment of the path, in which
	// a percent-encoded slash is text, and may be followed by a verb after a colon.
	Path string
	// Operation is the name of the operation, also in logs and metrics.
	Operation string
	// ByKey marks the form of an operation that names the lock in its body or query
	// instead of its path. An operation has one form of each kind at most.
	ByKey bool
	// Summary describes the operation in a sentence.
	Summary string
	// Verb is the right that a caller needs, for the lock that the request names, if any.
	Verb auth.Verb
	// Query holds the parameters, including headers.
	Query []Parameter
	// Body and Reply are zero values of the types of the JSON bodies; nil without a body.
	Body, Reply any
	// Media is the type of the answer if it is not JSON.
	Media string
	// Probe marks an operation that programs call so often that it is logged at debug level only.
	Probe bool
	// Success are the statuses of success, and Causes the problems, without the problems that
	// every operation can have.
	Success []int
	Causes  []*Cause
	// Refusals are zero values of JSON answers of failure that are not problems, by status.
	Refusals map[int]any

	segments []segment
}

// AllCauses returns the causes of the route, and the general causes that apply to it.
func (rt Route) AllCauses() []*Cause {
	all := append(slices.Clone(rt.Causes), Forbidden)
	if rt.Verb != auth.Anyone {
		all = append(all, Unauthenticated)
	}
	if rt.Operation != "livez" {
		all = append(all, Overloaded)
	}
	if rt.Verb != auth.Anyone && !rt.Probe {
		all = append(all, Internal)
	}
	if rt.Body != nil || len(rt.Query) > 0 || len(rt.segments) > 0 && strings.Contains(rt.Path, "{") {
		all = append(all, Invalid)
	}
	slices.SortStableFunc(all, func(a, b *Cause) int { return a.Status - b.Status })
	return slices.Compact(all)
}

// Parameter is a parameter of the query, or a header.
type Parameter struct {
	Name, Description string
	// Type is a JSON type: string or integer.
	Type string
	// Header marks a header. Other parameters are part of the query.
	Header bool
	// Repeated marks a parameter that may be given several times.
	Repeated bool
}

// segment is a segment of a path template: a literal, or a wildcard with the literal after it.
type segment struct {
	literal string
	wild    bool
}

// compile splits the template of a route into segments.
func (rt Route) compile() Route {
	for part := range strings.SplitSeq(strings.TrimPrefix(rt.Path, "/"), "/") {
		_, literal, wild := strings.Cut(part, "}")
		if !wild {
			literal = part
		}
		rt.segments = append(rt.segments, segment{literal, wild})
	}
	return rt
}

// match reports whether a path with the same number of segments matches.
func (rt *Route) match(parts []part) bool {
	for i, s := range rt.segments {
		if !s.wild && parts[i].raw != s.literal || !strings.HasSuffix(parts[i].raw, s.literal) {
			return false
		}
	}
	return true
}

// values returns the values of the wildcards of a path that matches: the names of a lock or
// resource, and of a lease.
func (rt *Route) values(parts []part) (v [2]string) {
	n := 0
	for i, s := range rt.segments {
		if s.wild {
			v[n] = strings.TrimSuffix(parts[i].text, s.literal)
			n++
		}
	}
	return v
}

// verbs reports whether the route ends in a wildcard with a verb. Such routes
// are tried first: a name that ends like a verb is sent with its colon encoded.
func (rt *Route) verbs() bool {
	last := rt.segments[len(rt.segments)-1]
	return last.wild && last.literal != ""
}

// route is a route with its handler.
type route struct {
	Route
	Handle handler
}

// handler answers a request, or returns an error, which the caller answers as a problem.
type handler func(s *Server, w *answer, r *http.Request) error

// table finds the route of a request.
type table struct {
	all []route
	of  [maxSegments + 1][]*route // by the number of their segments
}

// newTable returns a table of routes.
func newTable(routes []route) *table {
	t := new(table)
	for _, verbs := range []bool{true, false} { // a route with a verb is looked at first
		for _, rt := range routes {
			if rt.Route = rt.compile(); rt.verbs() == verbs {
				t.all = append(t.all, rt)
			}
		}
	}
	for i := range t.all {
		n := len(t.all[i].segments)
		t.of[n] = append(t.of[n], &t.all[i])
	}
	return t
}

// routes returns all routes.
func (t *table) routes() []Route {
	all := make([]Route, len(t.all))
	for i := range t.all {
		all[i] = t.all[i].Route
	}
	return all
}

// find returns the route of a request with the values of its wildcards, or nil.
func (t *table) find(r *http.Request) (*route, [2]string) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	parts := split(r.URL)
	for _, rt := range t.of[len(parts)] {
		if rt.Method == method && rt.match(parts) {
			return rt, rt.values(parts)
		}
	}
	return nil, [2]string{}
}

// allowed returns the methods of the path, or nil if the path does not exist.
func (t *table) allowed(r *http.Request) (methods []string) {
	parts := split(r.URL)
	for _, rt := range t.of[len(parts)] {
		if rt.match(parts) {
			methods = append(methods, rt.Method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// maxSegments is more than the number of segments of any path.
const maxSegments = 8

// part is one segment of a path: as it came, and decoded.
type part struct{ raw, text string }

// split returns the segments of a path; nil if there are more than maxSegments, or if a segment
// cannot be decoded.
func split(u *url.URL) (parts []part) {
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	if strings.Count(path, "/") >= maxSegments {
		return nil
	}
	for raw := range strings.SplitSeq(path, "/") {
		text, err := url.PathUnescape(raw)
		if err != nil {
			return nil
		}
		parts = append(parts, part{raw, text})
	}
	return parts
}

// namedPath matches the path of a lock or resource: the path before its name, the name with the
// id of a lease after it, or the name alone.
var namedPath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(/v1/locks/|/api/locks/[^/]*/)(?:(.+)(/leases/.*)|(.+))$`)
})

// slashed returns the path that was probably meant if the name of a lock or of a resource has
// slashes that are not encoded; empty for any other path.
func slashed(u *url.URL) string {
	parts := namedPath().FindStringSubmatch(u.EscapedPath())
	if parts == nil {
		return ""
	}
	name := parts[2] + parts[4]
	if !strings.Contains(strings.Trim(name, "/"), "/") {
		return ""
	}
	return parts[1] + strings.ReplaceAll(name, "/", "%2F") + parts[3]
}
