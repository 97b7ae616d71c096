package server_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// contract is the OpenAPI document, with the statuses and causes that have occurred in the tests.
type contract struct {
	text   []byte
	doc    *openapi3.T
	routes []rule

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	seen     map[string]bool // "operation status" and "operation cause"
	odd      []string
}

// rule is a route, by a pattern of paths.
type rule struct {
	server.Route
	path *regexp.Regexp
}

// theContract returns the contract of the service. Every answer of a service of serve is compared with
// it.
var theContract = sync.OnceValue(func() *contract {
	s, err := server.New(memdriver.New(), server.WithPage(server.PageFull))
	if err != nil {
		panic(err)
	}
	defer s.Close()
	c := &contract{text: s.OpenAPI(), seen: make(map[string]bool)}
	for _, rt := range s.Routes() {
		path := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(rt.Path), `[^/]+`)
		c.routes = append(c.routes, rule{rt, regexp.MustCompile("^" + path + "$")})
	}
	if c.doc, err = openapi3.NewLoader().LoadFromData(c.text); err != nil {
		panic(err)
	}
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.text))
	if err != nil {
		panic(err)
	}
	c.compiler = jsonschema.NewCompiler()
	if err := c.compiler.AddResource(documentURL, text); err != nil {
		panic(err)
	}
	return c
})

// documentURL is the URL of the document for the JSON Schema compiler. Schemas of OpenAPI 3.1
// are JSON Schemas.
const documentURL = "test:///openapi.json"

// find returns the route of a request, nil if there is none.
func (c *contract) find(x *exchange) *server.Route {
	method := x.method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	at, err := url.Parse(x.url)
	if err != nil {
		return nil
	}
	for i := range c.routes { // routes with a verb are first
		if rt := &c.routes[i]; rt.Method == method && rt.path.MatchString(at.EscapedPath()) {
			return &rt.Route
		}
	}
	return nil
}

// judge records an answer, and how it differs from the document.
func (c *contract) judge(x *exchange) {
	rt := c.find(x)
	if rt == nil {
		if !slices.Contains([]int{404, 405, 401, 403, 500}, x.status) {
			c.note(fmt.Sprintf("%s, which is no operation: %d", x, x.status))
		}
		return
	}
	c.mark(rt.Operation + " " + strconv.Itoa(x.status))
	if err := c.compare(rt, c.doc.Paths.Value(rt.Path).GetOperation(rt.Method), x); err != nil {
		c.note(fmt.Sprintf("%s: %d %.300s: %v", rt.Operation, x.status, x.body, err))
	}
	var p struct{ Type string }
	if json.Unmarshal([]byte(x.body), &p) == nil && p.Type != "" {
		c.mark(rt.Operation + " " + p.Type[strings.LastIndexByte(p.Type, '#')+1:])
	}
}

func (c *contract) mark(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[what] = true
}

func (c *contract) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.odd) < 20 {
		c.odd = append(c.odd, what)
	}
}

// compare returns how an answer differs from its description.
func (c *contract) compare(rt *server.Route, op *openapi3.Operation, x *exchange) error {
	operation := "#/paths/" + pointer(rt.Path) + "/" + strings.ToLower(rt.Method)
	response := op.Responses.Value(strconv.Itoa(x.status))
	if response == nil {
		return fmt.Errorf("the status is not documented")
	}
	for name := range response.Value.Headers {
		if name == "X-Request-Id" && x.header.Get(name) == "" {
			return fmt.Errorf("header %s is missing", name)
		}
	}
	if op.RequestBody != nil && x.status < 300 && strings.TrimSpace(x.sent) != "" {
		if err := c.fits(x.sent, operation, "requestBody", "content", "application/json"); err != nil {
			return fmt.Errorf("it was accepted, but the request does not fit: %w", err)
		}
	}
	if x.method == http.MethodHead || len(response.Value.Content) == 0 {
		if x.body != "" {
			return fmt.Errorf("a body, which is not documented")
		}
		return nil
	}
	media, _, _ := mime.ParseMediaType(x.header.Get("Content-Type"))
	content := response.Value.Content[media]
	switch {
	case content == nil:
		return fmt.Errorf("content of type %q is not documented", media)
	case !strings.HasSuffix(media, "json"):
		return nil
	}
	if response.Ref != "" {
		return c.fits(x.body, response.Ref, "content", media)
	}
	return c.fits(x.body, operation, "responses", strconv.Itoa(x.status), "content", media)
}

// pointer returns a name as a part of a URL with a JSON pointer.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

// fits compares JSON with the schema of a body: the one at a place below another in the document.
func (c *contract) fits(text, url string, place ...string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	url = documentURL + url
	for _, part := range append(place, "schema") {
		url += "/" + pointer(part)
	}
	c.mu.Lock()
	schema, err := c.compiler.Compile(url)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// missing returns the documented statuses and causes that did not occur.
func (c *contract) missing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var missing []string
	want := func(what string) {
		if !c.seen[what] {
			missing = append(missing, what)
		}
	}
	for _, rt := range c.routes {
		op := c.doc.Paths.Value(rt.Path).GetOperation(rt.Method)
		for _, status := range slices.Sorted(maps.Keys(op.Responses.Map())) {
			want(rt.Operation + " " + status)
		}
		for _, cause := range rt.AllCauses() {
			want(rt.Operation + " " + cause.Name)
		}
	}
	return missing
}

// TestMain runs the tests and then, if all were run, checks that all statuses and causes of the
// OpenAPI document have occurred in them, and no others.
func TestMain(m *testing.M) {
	code := m.Run()
	c := theContract()
	for _, odd := range c.odd {
		code = 1
		fmt.Println("FAIL: not as documented:", odd)
	}
	if missing := c.missing(); everything() && len(missing) > 0 {
		code = 1
		fmt.Printf("FAIL: documented, but never seen in the tests:\n\t%s\n", strings.Join(missing, "\n\t"))
	}
	os.Exit(code)
}

// everything reports whether all tests are run.
func everything() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

func TestOpenAPI_IsValidAndServed(t *testing.T) {
	noErr(t, theContract().doc.Validate(t.Context()))
	_, base := serve(t, memdriver.New())
	var doc struct{ OpenAPI string }
	if answer(t, "GET", base+"/openapi.json", "", 200, &doc); doc.OpenAPI != "3.1.0" {
		t.Errorf("version %s", doc.OpenAPI)
	}
}
