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

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/api"
)

// document is the part of the OpenAPI document that describes the code.
type document struct {
	Paths      map[string]map[string]described
	Components struct {
		Parameters map[string]parameter
		Responses  map[string]response
		Schemas    map[string]schema
	}
}

type described struct {
	OperationID, Summary, Description string
	Security                          []any
	Parameters                        []parameter
	RequestBody                       struct {
		Required bool
		Content  content
	}
	Responses map[string]response
}

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                schema
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Headers     map[string]any
	Content     content
}

type content map[string]struct{ Schema schema }

type schema struct {
	Ref                                string `json:"$ref"`
	Type, Format, Description, Pattern string
	Required                           []string
	Properties                         map[string]schema
	AdditionalProperties               any
	Items                              *schema
	Enum                               []string
	Const, Default, Minimum, Maximum   any
	MinLength, MaxLength               any
}

// documentOf returns the document of a service with a page, and the service's routes.
func documentOf(t *testing.T, mode server.PageMode) (doc document, routes []server.Route) {
	t.Helper()
	s := open(t, memdriver.New(), server.WithPage(mode))
	if err := json.Unmarshal(s.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(string(s.OpenAPI()), `"#/components/schemas/`+name+`"`) && mode == server.PageFull {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
	return doc, s.Routes()
}

// operation is an operation in the form in which the document and a route are compared.
type operation struct {
	ID, Summary, Description, Body string
	Anyone                         bool
	Parameters                     []string
	Answers                        map[string][]string // content, problem types and headers, by status
}

// operation returns an operation of the document.
func (d *document) operation(t *testing.T, op described) operation {
	o := operation{
		ID: op.OperationID, Summary: op.Summary, Description: op.Description,
		Anyone: op.Security != nil, Answers: make(map[string][]string),
	}
	if schema, ok := op.RequestBody.Content["application/json"]; ok {
		o.Body = schema.Schema.kind()
		if op.RequestBody.Required != (d.Components.Schemas[o.Body].Required != nil) {
			t.Errorf("%s: the body is required: %t", o.ID, op.RequestBody.Required)
		}
	}
	for _, p := range op.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[path.Base(p.Ref)]
		}
		text := fmt.Sprintf("%s %s, %s: %s", p.In, p.Name, p.Schema.kind(), p.Description)
		if p.In == "path" {
			text = fmt.Sprintf("path %s, %t", p.Name, p.Required)
		}
		o.Parameters = append(o.Parameters, text)
	}
	for status, r := range op.Responses {
		if r.Ref != "" {
			r = d.Components.Responses[path.Base(r.Ref)]
		}
		answer := slices.Collect(maps.Keys(r.Headers))
		for media, c := range r.Content {
			answer = append(answer, media+" "+c.Schema.kind())
			kinds := c.Schema.Properties["type"].Enum
			if answer = append(answer, kinds...); kinds != nil && fmt.Sprint(c.Schema.Properties["status"].Const) != status {
				t.Errorf("%s: the problem with status %s has another", o.ID, status)
			}
		}
		for _, cause := range server.Causes() {
			if slices.Contains(answer, cause.Type()) && !strings.Contains(r.Description, fmt.Sprintf("`%s`: %s. %s", cause.Name, cause.Title, cause.Meaning)) {
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
	for _, mode := range []server.PageMode{server.PageOff, server.PageFull} {
		doc, routes := documentOf(t, mode)
		for i := range routes {
			rt := &routes[i]
			method := strings.ToLower(rt.Method)
			if got, want := doc.operation(t, doc.Paths[rt.Path][method]), operationOf(rt); !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s:\n%+v, want\n%+v", rt.Method, rt.Path, got, want)
			}
			delete(doc.Paths[rt.Path], method)
		}
		for path, operations := range doc.Paths {
			if len(operations) > 0 {
				t.Errorf("there is no route for %s %v", path, operations)
			}
		}
	}
}

// kind returns the type that a schema describes.
func (s *schema) kind() string {
	switch element, isMap := s.AdditionalProperties.(map[string]any); {
	case s.Ref != "":
		return path.Base(s.Ref)
	case s.Format == "date-time":
		return s.Format
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case isMap:
		return fmt.Sprint("map of ", element["type"])
	}
	return s.Type
}

// kindOf returns how the document describes a type.
func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Time]():
		return "date-time"
	case reflect.TypeFor[api.Object]():
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
	doc, routes := documentOf(t, server.PageFull)
	closed, seen := make(map[string]bool), make(map[string]bool)
	for _, rt := range routes {
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
		got, fields := doc.Components.Schemas[name], 0
		for _, f := range reflect.VisibleFields(of) {
			field, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if field == "" {
				continue
			}
			fields++
			compare(f.Type)
			is := got.Properties[field]
			if kind, required := kindOf(f.Type), option == ""; is.kind() != kind || is.Description == "" || slices.Contains(got.Required, field) != required {
				t.Errorf("%s.%s: %+v, want %s, required %t, with a description", name, field, is, kind, required)
			}
			if f.Type == reflect.TypeFor[wire.Millis]() && is.Minimum == nil {
				t.Errorf("%s.%s may be negative", name, field)
			}
		}
		if got.Type != "object" || len(got.Properties) != fields {
			t.Errorf("%s: %d properties, want %d", name, len(got.Properties), fields)
		}
		if _, no := got.AdditionalProperties.(bool); no != closed[name] {
			t.Errorf("%s: additional properties: %v", name, got.AdditionalProperties)
		}
	}
	for _, rt := range routes {
		bodies := append(slices.Collect(maps.Values(rt.Refusals)), wire.Problem{}, rt.Body, rt.Reply)
		for _, body := range bodies {
			if body != nil {
				compare(reflect.TypeOf(body))
			}
		}
	}
}

func TestOpenAPI_HasTheBoundsOfRequests(t *testing.T) {
	doc, _ := documentOf(t, server.PageFull)
	id := fmt.Sprintf(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,%d}$`, check.MaxID-1)
	visit := schema{MaxLength: api.MaxVisit, Pattern: `^[A-Za-z0-9_./-]*$`}
	millis := func(low, high time.Duration) schema {
		return schema{Minimum: low.Milliseconds(), Maximum: high.Milliseconds()}
	}
	defaults := func(s schema, value any) schema {
		s.Default = value
		return s
	}
	permits := schema{Minimum: 0, Maximum: 1<<31 - 1}
	token := schema{Minimum: 0, Maximum: int64(1<<53 - 1)}
	name := schema{MaxLength: check.MaxKey}
	ttl := defaults(millis(check.MinTTL, check.MaxTTL), api.DefaultTTL.Milliseconds())
	for where, want := range map[string]schema{
		"Acquire": {}, "Renew": {}, "Release": {}, "Break": {},
		"Acquire.ttlMs": ttl, "Acquire.waitMs": millis(0, check.MaxTTL), "Acquire.ticketMs": millis(0, api.MaxTicket),
		"Acquire.lockDelayMs": millis(0, check.MaxTTL), "Acquire.confirmMs": millis(0, api.MaxTicket),
		"Acquire.limit": permits, "Acquire.permits": permits, "Acquire.minToken": token, "Acquire.notify": name,
		"Acquire.owner": {MaxLength: check.MaxOwner}, "Acquire.visit": visit,
		"Acquire.mode": {Default: "exclusive"}, "Acquire.policy": {Default: "fifo"},
		"Renew.ttlMs": ttl, "Renew.ticketMs": defaults(millis(0, api.MaxTicket), api.DefaultTicket.Milliseconds()),
		"Renew.minToken": token, "Renew.notify": name, "Renew.visit": visit,
		"Release.keepMs": millis(0, check.MaxTTL), "Release.forbidMs": {Minimum: 0, Default: 60000}, "Release.visit": visit,
		"Break.reason": {MinLength: 1, MaxLength: check.MaxReason},
	} {
		of, field, _ := strings.Cut(where, ".")
		bounds := map[string]schema{field: want}
		if field == "" {
			bounds = map[string]schema{"key": name, "leaseId": {Pattern: id}}
		}
		for field, want := range bounds {
			got := doc.Components.Schemas[of].Properties[field]
			text := func(s schema) string {
				limits := []any{s.Pattern, s.Default, s.Minimum, s.Maximum, s.MinLength, s.MaxLength}
				for i, limit := range limits {
					if number, ok := limit.(float64); ok {
						limits[i] = int64(number)
					}
				}
				return fmt.Sprint(limits...)
			}
			if text(got) != text(want) {
				t.Errorf("%s.%s: %s, want %s", of, field, text(got), text(want))
			}
		}
	}
}
