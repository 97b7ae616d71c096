// Package api is the interface of the service as its clients see it: routes, bodies,
// problems, and the OpenAPI document that is made of them.
package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/server/auth"
)

// Route is one operation of the interface. The table of all routes is what
// requests are matched against, and what the OpenAPI document is made from.
type Route struct {
	Method string
	// Path is a template as OpenAPI has it: a segment {x} stands for one
	// segment of the path, in which a percent-encoded slash is text, and may be
	// followed by a verb after a colon.
	Path string
	// Operation is the name of the operation, also in logs and metrics.
	Operation string
	// ByKey marks the form of an operation that names the lock in its body or query
	// instead of its path. An operation has one form of each kind at most.
	ByKey bool
	// Summary says in a sentence what it does.
	Summary string
	// Verb is the right that a caller needs, on the lock that the request names if
	// it names one.
	Verb auth.Verb
	// Query names the parameters that are understood.
	Query []Parameter
	// Body and Reply are zero Values of the JSON that is taken and returned;
	// nil for none.
	Body, Reply any
	// Media is the type of the answer if it is not JSON.
	Media string
	// Probe tells that programs ask so often that it is not worth a record.
	Probe bool
	// Success are the statuses of success, Causes the problems, beside
	// those that every operation can have.
	Success []int
	Causes  []*Cause
	// Refusals are answers that are no success and no problem either, but of a
	// form of their own: zero Values of their JSON, by status.
	Refusals map[int]any

	segments []segment
}

// Parameter is one of the query, or a header.
type Parameter struct {
	Name, Description string
	// Type is a JSON type: string or integer.
	Type string
	// Header tells that it is a header and not a part of the query.
	Header bool
	// Repeated tells that it may be given several times.
	Repeated bool
}

// segment is one of a path template: a literal, or a wildcard and what follows
// it.
type segment struct {
	literal string
	wild    string // the name of the wildcard; empty for a literal
}

// compile takes the template of a route apart.
func (rt Route) compile() Route {
	for part := range strings.SplitSeq(strings.TrimPrefix(rt.Path, "/"), "/") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(part, "{"), "}")
		if !ok {
			name, rest = "", part
		}
		rt.segments = append(rt.segments, segment{literal: rest, wild: name})
	}
	return rt
}

// maxWild is how many wildcards a path has at most.
const maxWild = 2

// Values are what stands for the wildcards of a path, in its order.
type Values [maxWild]struct{ wild, text string }

// Get returns what stands for a wildcard; nothing if there is none of the name.
func (v *Values) Get(wild string) string {
	for i := range v {
		if v[i].wild == wild {
			return v[i].text
		}
	}
	return ""
}

// match compares a path that has as many segments.
func (rt *Route) match(parts []part) bool {
	for i, s := range rt.segments {
		if s.wild == "" && parts[i].raw != s.literal || !strings.HasSuffix(parts[i].raw, s.literal) {
			return false
		}
	}
	return true
}

// values returns what stands for the wildcards of a path that matches.
func (rt *Route) values(parts []part) (v Values) {
	n := 0
	for i, s := range rt.segments {
		if s.wild != "" {
			v[n].wild, v[n].text = s.wild, strings.TrimSuffix(parts[i].text, s.literal)
			n++
		}
	}
	return v
}

// verbs reports whether the route ends in a wildcard with a verb. Such routes
// are tried first: a name that ends like a verb is sent with its colon encoded.
func (rt *Route) verbs() bool {
	last := rt.segments[len(rt.segments)-1]
	return last.wild != "" && last.literal != ""
}

// Entry is a route and what handles its requests.
type Entry[H any] struct {
	Route
	Handle H
}

// Table finds the route of a request.
type Table[H any] struct {
	all []Entry[H]
	of  [maxSegments + 1][]*Entry[H] // by the number of their segments
}

// NewTable returns the table of some routes.
func NewTable[H any](routes []Entry[H]) *Table[H] {
	t := new(Table[H])
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

// Routes returns all.
func (t *Table[H]) Routes() []Route {
	all := make([]Route, len(t.all))
	for i := range t.all {
		all[i] = t.all[i].Route
	}
	return all
}

// Find returns the route, nil if there is none, and what stands for its wildcards.
func (t *Table[H]) Find(r *http.Request) (*Entry[H], Values) {
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
	return nil, Values{}
}

// Allowed returns the methods that the path has, none if it does not exist.
func (t *Table[H]) Allowed(r *http.Request) (methods []string) {
	parts := split(r.URL)
	for _, rt := range t.of[len(parts)] {
		if rt.match(parts) {
			methods = append(methods, rt.Method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// maxSegments is more than any path has that there is.
const maxSegments = 8

// part is one segment of a path: as it came, and decoded.
type part struct{ raw, text string }

// split returns the segments of a path; none if there are more than any path has,
// or if one cannot be decoded.
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

// Slashed returns the path that was probably meant by one in which the name of a lock or
// of a resource has slashes that are not encoded; empty for any other path.
func Slashed(u *url.URL) string {
	path := u.EscapedPath()
	for _, root := range []string{"/v1/locks/", "/api/locks/"} {
		name, ok := strings.CutPrefix(path, root)
		if !ok {
			continue
		}
		if root != "/v1/locks/" { // the kind of the operation comes first
			kind, rest, _ := strings.Cut(name, "/")
			root, name = root+kind+"/", rest
		}
		lease := ""
		if i := strings.LastIndex(name, leases); i > 0 {
			name, lease = name[:i], name[i:]
		}
		if !strings.Contains(strings.Trim(name, "/"), "/") {
			return ""
		}
		return root + strings.ReplaceAll(name, "/", "%2F") + lease
	}
	return ""
}

// leases stands between the name of a lock and the id of one of its leases.
const leases = "/leases/"
