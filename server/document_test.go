package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

// operation is an operation in the form in which the document and a route are compared.
type operation struct {
	ID, Summary, Description, Body string
	Anyone                         bool
	Parameters                     []string
	Answers                        map[string][]string // content, problem types and headers, by status
}

// described returns an operation of the document.
func described(t *testing.T, doc *openapi3.T, op *openapi3.Operation) operation {
	o := operation{
		ID: op.OperationID, Summary: op.Summary, Description: op.Description,
		Anyone: op.Security != nil, Answers: make(map[string][]string),
	}
	if op.RequestBody != nil {
		o.Body = kind(op.RequestBody.Value.Content["application/json"].Schema)
		if op.RequestBody.Value.Required != (doc.Components.Schemas[o.Body].Value.Required != nil) {
			t.Errorf("%s: the body is required: %t", o.ID, op.RequestBody.Value.Required)
		}
	}
	for _, ref := range op.Parameters {
		p := ref.Value
		text := fmt.Sprintf("%s %s, %s: %s", p.In, p.Name, kind(p.Schema), p.Description)
		if p.In == "path" {
			text = fmt.Sprintf("path %s, %t", p.Name, p.Required)
		}
		o.Parameters = append(o.Parameters, text)
	}
	for status, r := range op.Responses.Map() {
		answer := slices.Collect(maps.Keys(r.Value.Headers))
		for media, c := range r.Value.Content {
			answer = append(answer, media+" "+kind(c.Schema))
			var problem struct { // the fields next to the reference
				Properties struct {
					Type   struct{ Enum []string }
					Status struct{ Const int }
				}
			}
			if text, err := c.Schema.MarshalJSON(); err != nil || json.Unmarshal(text, &problem) != nil {
				t.Errorf("%s: %s, %v", o.ID, text, err)
			}
			kinds := problem.Properties.Type.Enum
			if answer = append(answer, kinds...); kinds != nil && strconv.Itoa(problem.Properties.Status.Const) != status {
				t.Errorf("%s: the problem with status %s has another", o.ID, status)
			}
		}
		for _, cause := range server.Causes() {
			if slices.Contains(answer, cause.Type()) && !strings.Contains(*r.Value.Description, fmt.Sprintf("`%s`: %s. %s", cause.Name, cause.Title, cause.Meaning)) {
				t.Errorf("%s: the cause %s is not described", o.ID, cause.Name)
			}
		}
		slices.Sort(answer)
		o.Answers[status] = answer
	}
	return o
}

// operationOf returns the operation of a route.
func operationOf(rt *server.Route) operation {
	o := operation{ID: rt.Operation, Summary: rt.Summary, Anyone: rt.Verb == auth.Anyone, Answers: make(map[string][]string)}
	if rt.ByKey {
		o.ID += "ByKey"
	}
	if !o.Anyone {
		o.Description = fmt.Sprintf("Needs the right `%s`, if the service requires authentication.", rt.Verb)
	}
	if rt.Body != nil {
		o.Body = kindOf(reflect.TypeOf(rt.Body))
	}
	for part := range strings.SplitSeq(rt.Path, "{") {
		if name, _, ok := strings.Cut(part, "}"); ok {
			o.Parameters = append(o.Parameters, fmt.Sprintf("path %s, true", name))
		}
	}
	for _, p := range rt.Query {
		in, kind := "query", p.Type
		if p.Header {
			in = "header"
		}
		if p.Repeated {
			kind = "list of " + kind
		}
		o.Parameters = append(o.Parameters, fmt.Sprintf("%s %s, %s: %s", in, p.Name, kind, p.Description))
	}
	answers := make(map[int][]string)
	for _, status := range rt.Success {
		switch {
		case status == http.StatusNoContent || status == http.StatusNotModified:
			answers[status] = nil
		case rt.Media != "":
			answers[status] = []string{rt.Media + " string"}
		default:
			answers[status] = []string{"application/json " + kindOf(reflect.TypeOf(rt.Reply))}
		}
	}
	for _, cause := range rt.AllCauses() {
		if answers[cause.Status] == nil {
			answers[cause.Status] = []string{wire.ProblemMedia + " Problem"}
		}
		answers[cause.Status] = append(answers[cause.Status], cause.Type())
	}
	for status, body := range rt.Refusals {
		answers[status] = append(answers[status], "application/json "+kindOf(reflect.TypeOf(body)))
	}
	headers := map[int]string{202: "Retry-After", 304: "ETag", 401: "WWW-Authenticate", 409: "Retry-After", 429: "Retry-After", 503: "Retry-After"}
	for status, answer := range answers {
		answer = append(answer, "X-Request-Id")
		if name := headers[status]; name != "" {
			answer = append(answer, name)
		}
		slices.Sort(answer)
		o.Answers[strconv.Itoa(status)] = answer
	}
	return o
}

func TestOpenAPI_DescribesTheRoutes(t *testing.T) {
	c := theContract()
	for i := range c.routes {
		rt := &c.routes[i].Route
		op := c.doc.Paths.Value(rt.Path).GetOperation(rt.Method)
		if got, want := described(t, c.doc, op), operationOf(rt); !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s:\n%+v, want\n%+v", rt.Method, rt.Path, got, want)
		}
	}
	for path, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			if !slices.ContainsFunc(c.routes, func(r rule) bool { return r.Method == method && r.Path == path }) {
				t.Errorf("there is no route for %s %s", method, path)
			}
		}
	}
	for name := range c.doc.Components.Schemas {
		if !strings.Contains(string(c.text), `"#/components/schemas/`+name+`"`) {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
}

func TestOpenAPI_HasNoPathsOfThePageWithoutThePage(t *testing.T) {
	s := open(t, memdriver.New())
	var doc struct{ Paths map[string]any }
	noErr(t, json.Unmarshal(s.OpenAPI(), &doc))
	var paths []string
	for _, rt := range s.Routes() {
		paths = append(paths, rt.Path)
	}
	slices.Sort(paths)
	if got := slices.Sorted(maps.Keys(doc.Paths)); !slices.Equal(got, slices.Compact(paths)) {
		t.Errorf("%q, want %q", got, paths)
	}
}

// kind returns the type that a schema describes.
func kind(ref *openapi3.SchemaRef) string {
	s := ref.Value
	switch {
	case ref.Ref != "":
		return path.Base(ref.Ref)
	case s.Format == "date-time":
		return s.Format
	case s.Items != nil:
		return "list of " + kind(s.Items)
	case s.AdditionalProperties.Schema != nil:
		return "map of " + kind(s.AdditionalProperties.Schema)
	case s.Type == nil:
		return ""
	}
	return strings.Join(*s.Type, " ")
}

// kindOf returns how the document describes a type.
func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Time]():
		return "date-time"
	case reflect.TypeFor[map[string]any]():
		return "object"
	}
	switch t.Kind() { //nolint:exhaustive // bodies have no other kinds
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "list of " + kindOf(t.Elem())
	case reflect.Map:
		return "map of " + kindOf(t.Elem())
	case reflect.Struct:
		return t.Name()
	}
	return t.Kind().String()
}

// TestOpenAPI_DescribesTheTypes: requests may have no other fields, and answers may have more in
// later versions.
func TestOpenAPI_DescribesTheTypes(t *testing.T) {
	c := theContract()
	closed, seen := make(map[string]bool), make(map[string]bool)
	for _, rt := range c.routes {
		if rt.Body != nil {
			closed[kindOf(reflect.TypeOf(rt.Body))] = true
		}
	}
	var compare func(of reflect.Type)
	compare = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		name := of.Name()
		if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() || seen[name] {
			return
		}
		seen[name] = true
		ref := c.doc.Components.Schemas[name]
		if ref == nil {
			t.Errorf("there is no schema %s", name)
			return
		}
		got, fields := ref.Value, 0
		for _, f := range reflect.VisibleFields(of) {
			field, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if field == "" {
				continue
			}
			fields++
			compare(f.Type)
			is := got.Properties[field]
			want, required := kindOf(f.Type), option == ""
			if is == nil || kind(is) != want || is.Value.Description == "" || slices.Contains(got.Required, field) != required {
				t.Errorf("%s.%s: %+v, want %s, required %t, with a description", name, field, is, want, required)
			} else if f.Type == reflect.TypeFor[wire.Millis]() && is.Value.Min == nil {
				t.Errorf("%s.%s may be negative", name, field)
			}
		}
		if !got.Type.Is("object") || len(got.Properties) != fields {
			t.Errorf("%s: %d properties, want %d", name, len(got.Properties), fields)
		}
		if no := got.AdditionalProperties.Has != nil; no != closed[name] {
			t.Errorf("%s: additional properties: %v", name, got.AdditionalProperties)
		}
	}
	for _, rt := range c.routes {
		bodies := append(slices.Collect(maps.Values(rt.Refusals)), wire.Problem{}, rt.Body, rt.Reply)
		for _, body := range bodies {
			if body != nil {
				compare(reflect.TypeOf(body))
			}
		}
	}
}

func TestOpenAPI_HasTheBoundsOfRequests(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]map[string]any }
		}
	}
	noErr(t, json.Unmarshal(theContract().text, &doc))
	type bounds = map[string]any
	millis := func(low, high time.Duration) bounds {
		return bounds{"minimum": low.Milliseconds(), "maximum": high.Milliseconds()}
	}
	defaults := func(b bounds, value any) bounds {
		b["default"] = value
		return b
	}
	visit := bounds{"maxLength": server.MaxVisit, "pattern": `^[A-Za-z0-9_./-]*$`}
	permits := bounds{"minimum": 0, "maximum": 1<<31 - 1}
	token := bounds{"minimum": 0, "maximum": int64(1<<53 - 1)}
	name := bounds{"maxLength": check.MaxKey}
	id := bounds{"pattern": fmt.Sprintf(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,%d}$`, check.MaxID-1)}
	ttl := defaults(millis(check.MinTTL, check.MaxTTL), server.DefaultTTL.Milliseconds())
	all := map[string]bounds{
		"Acquire.ttlMs": ttl, "Acquire.waitMs": millis(0, check.MaxTTL), "Acquire.ticketMs": millis(0, server.MaxTicket),
		"Acquire.lockDelayMs": millis(0, check.MaxTTL), "Acquire.confirmMs": millis(0, server.MaxTicket),
		"Acquire.limit": permits, "Acquire.permits": permits, "Acquire.minToken": token, "Acquire.notify": name,
		"Acquire.owner": {"maxLength": check.MaxOwner}, "Acquire.visit": visit,
		"Acquire.mode": {"default": "exclusive"}, "Acquire.policy": {"default": "fifo"},
		"Renew.ttlMs": ttl, "Renew.ticketMs": defaults(millis(0, server.MaxTicket), server.DefaultTicket.Milliseconds()),
		"Renew.minToken": token, "Renew.notify": name, "Renew.visit": visit,
		"Release.keepMs": millis(0, check.MaxTTL), "Release.forbidMs": {"minimum": 0, "default": 60000}, "Release.visit": visit,
		"Break.reason": {"minLength": 1, "maxLength": check.MaxReason},
	}
	for _, of := range []string{"Acquire", "Renew", "Release", "Break"} {
		all[of+".key"], all[of+".leaseId"] = name, id
	}
	for where, want := range all {
		of, field, _ := strings.Cut(where, ".")
		got := doc.Components.Schemas[of].Properties[field]
		maps.DeleteFunc(got, func(name string, _ any) bool {
			return !slices.Contains([]string{"pattern", "default", "minimum", "maximum", "minLength", "maxLength"}, name)
		})
		has, _ := json.Marshal(got)
		if wants, _ := json.Marshal(want); string(has) != string(wants) {
			t.Errorf("%s: %s, want %s", where, has, wants)
		}
	}
}
