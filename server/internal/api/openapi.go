package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/check"
)

// NewDocument returns a function that returns the OpenAPI document of routes. It is made at the
// first call.
func NewDocument(routes []Route) func() []byte {
	return sync.OnceValue(func() []byte {
		text, err := json.MarshalIndent(describe(routes), "", "  ")
		if err != nil {
			panic(err) // it is made of maps and strings
		}
		return append(text, '\n')
	})
}

// Object is a JSON object.
type Object map[string]any

// describe makes the document from the routes and the types of their bodies.
func describe(routes []Route) Object {
	types := make(schemas)
	return Object{
		"openapi": "3.1.0",
		"info": Object{
			"title": "Leasehold", "version": version(),
			"summary": "Locks that work across machines, for programs in any language",
			"description": "A lock is a lease: it is granted for a time, renewed while its holder lives, and its end is always noticed. " +
				"The lease id that a client chooses makes every request repeatable. Durations are whole milliseconds.",
			"license": Object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
		},
		"externalDocs": Object{"url": strings.TrimSuffix(wire.ProblemTypes, "#"), "description": "The guide"},
		"servers":      []Object{{"url": "/"}},
		"paths":        paths(routes, types),
		"components": Object{
			"schemas": types,
			"securitySchemes": Object{
				"token":       Object{"type": "http", "scheme": "bearer", "description": "A token of the authentication file"},
				"certificate": Object{"type": "mutualTLS", "description": "A client certificate"},
			},
		},
	}
}

// paths returns the operations by path, and adds their types to types.
func paths(routes []Route, types schemas) Object {
	all := make(Object)
	for _, rt := range routes {
		path, _ := all[rt.Path].(Object)
		if path == nil {
			path = make(Object)
			all[rt.Path] = path
		}
		path[strings.ToLower(rt.Method)] = rt.describe(types)
	}
	return all
}

// version returns the version of the module in this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "github.com/leasehold-go/leasehold" && m.Version != "" {
				return m.Version
			}
		}
	}
	return "(devel)"
}

// describe returns the description of one operation.
func (rt Route) describe(types schemas) Object {
	id := rt.Operation
	if rt.ByKey {
		id += "ByKey"
	}
	op := Object{
		"operationId": id, "summary": rt.Summary,
		"parameters": rt.parameters(), "responses": rt.responses(types),
	}
	switch rt.Verb {
	case auth.Anyone:
		op["security"] = []Object{}
	default:
		op["security"] = []Object{{"token": []string{}}, {"certificate": []string{}}, {}}
		op["description"] = fmt.Sprintf("Needs the right `%s`, if the service requires authentication.", rt.Verb)
	}
	if rt.Body != nil {
		op["requestBody"] = Object{
			"required": len(required(reflect.TypeOf(rt.Body))) > 0,
			"content":  Object{"application/json": Object{"schema": types.ref(rt.Body)}},
		}
	}
	return op
}

// parameters returns the parameters of path, query and headers.
func (rt Route) parameters() []Object {
	all := []Object{}
	for _, s := range rt.segments {
		if s.wild == "" {
			continue
		}
		schema := Object{"type": "string", "minLength": 1, "maxLength": check.MaxName}
		text := "The name of the lock, percent-encoded: a slash in it is %2F"
		if s.wild == "id" {
			schema, text = Object{"type": "string", "pattern": idPattern}, "The lease id"
		}
		all = append(all, Object{"name": s.wild, "in": "path", "required": true, "description": text, "schema": schema})
	}
	for _, p := range rt.Query {
		in, schema := "query", Object{"type": p.Type}
		if p.Header {
			in = "header"
		}
		if p.Repeated {
			schema = Object{"type": "array", "items": schema}
		}
		all = append(all, Object{"name": p.Name, "in": in, "description": p.Description, "schema": schema})
	}
	return all
}

// successes describes the statuses of success.
var successes = map[int]string{
	http.StatusOK:          "Done",
	http.StatusCreated:     "Granted",
	http.StatusAccepted:    "Queued: ask again, with the same lease id, before the place expires",
	http.StatusNoContent:   "Ended",
	http.StatusNotModified: "Nothing has changed",
}

// responses returns the responses of success, and a response with problems for each status that
// a cause has.
func (rt Route) responses(types schemas) Object {
	all := make(Object)
	for _, status := range rt.Success {
		response := Object{"description": successes[status], "headers": headers(status, nil)}
		switch {
		case status == http.StatusNoContent || status == http.StatusNotModified:
		case rt.Media != "":
			response["content"] = Object{rt.Media: Object{"schema": Object{"type": "string"}}}
		default:
			response["content"] = Object{"application/json": Object{"schema": types.ref(rt.Reply)}}
		}
		all[strconv.Itoa(status)] = response
	}
	problems := make(map[int][]*Cause)
	for _, c := range rt.AllCauses() {
		problems[c.Status] = append(problems[c.Status], c)
	}
	for status, causes := range problems {
		all[strconv.Itoa(status)] = refusal(status, causes, types)
	}
	for status, body := range rt.Refusals {
		response, _ := all[strconv.Itoa(status)].(Object)
		if response == nil {
			response = Object{"description": "Not executed", "headers": headers(status, nil), "content": make(Object)}
			all[strconv.Itoa(status)] = response
		}
		response["content"].(Object)["application/json"] = Object{"schema": types.ref(body)}
	}
	return all
}

// refusal returns the response of one status, with its problem types.
func refusal(status int, causes []*Cause, types schemas) Object {
	var kinds, text []string
	for _, c := range causes {
		kinds = append(kinds, c.Type())
		text = append(text, fmt.Sprintf("`%s`: %s. %s", c.Name, c.Title, c.Meaning))
	}
	schema := types.ref(wire.Problem{})
	schema["properties"] = Object{"type": Object{"enum": kinds}, "status": Object{"const": status}}
	return Object{
		"description": strings.Join(text, "\n\n"),
		"headers":     headers(status, causes),
		"content":     Object{wire.ProblemMedia: Object{"schema": schema}},
	}
}

// headers returns the headers of a response.
func headers(status int, causes []*Cause) Object {
	header := func(kind, text string) Object {
		return Object{"description": text, "schema": Object{"type": kind}}
	}
	all := Object{"X-Request-Id": header("string", "The trace id of the request, for the operator to find it in the log")}
	switch status {
	case http.StatusUnauthorized:
		all["WWW-Authenticate"] = header("string", "Bearer")
	case http.StatusAccepted, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		all["Retry-After"] = header("integer", "Seconds after which to ask again")
	case http.StatusNotModified:
		all["ETag"] = header("string", "The value for If-None-Match in the next request")
	}
	if slices.Contains(causes, NotAllowed) {
		all["Allow"] = header("string", "The methods of the path")
	}
	return all
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
