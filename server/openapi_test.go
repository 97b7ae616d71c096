package server_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
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

// theContract returns the contract of the service. recorded compares every service of these
// tests with it.
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

// recorded compares every answer of a handler with the document.
func recorded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &sentBody{ReadCloser: r.Body}
		r.Body = sent
		answer := &observed{ResponseWriter: w}
		h.ServeHTTP(answer, r)
		if answer.status != 0 { // 0 if the client had gone
			theContract().judge(r, sent.read(), answer)
		}
	})
}

// sentBody stores the part of a body that was read. A proxy may continue to read it for a moment
// after its handler has returned.
type sentBody struct {
	io.ReadCloser
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p[:n])
	return n, err
}

// read returns the part of the body that has been read.
func (b *sentBody) read() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.text.Bytes())
}

type observed struct {
	http.ResponseWriter
	status int
	text   bytes.Buffer
}

func (a *observed) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *observed) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.text.Len() < 1<<20 {
		a.text.Write(p)
	}
	return a.ResponseWriter.Write(p)
}

func (a *observed) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// find returns the route of a request, nil if there is none.
func (c *contract) find(r *http.Request) *server.Route {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range c.routes { // routes with a verb are first
		if rt := &c.routes[i]; rt.Method == method && rt.path.MatchString(r.URL.EscapedPath()) {
			return &rt.Route
		}
	}
	return nil
}

// judge records an answer, and how it differs from the document.
func (c *contract) judge(r *http.Request, sent []byte, a *observed) {
	rt := c.find(r)
	if rt == nil {
		if a.status != 404 && a.status != 405 && a.status != 401 && a.status != 403 && a.status != 500 {
			c.note(fmt.Sprintf("%s %s, which is no operation: %d", r.Method, r.URL.Path, a.status))
		}
		return
	}
	op := c.doc.Paths.Value(rt.Path).GetOperation(rt.Method)
	c.mark(rt.Operation + " " + strconv.Itoa(a.status))
	if err := c.compare(rt, op, r, sent, a); err != nil {
		c.note(fmt.Sprintf("%s: %d %.300s: %v", rt.Operation, a.status, a.text.String(), err))
	}
	var p struct{ Type string }
	if json.Unmarshal(a.text.Bytes(), &p) == nil && p.Type != "" {
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
func (c *contract) compare(rt *server.Route, op *openapi3.Operation, r *http.Request, sent []byte, a *observed) error {
	operation := "#/paths/" + pointer(rt.Path) + "/" + strings.ToLower(rt.Method)
	response := op.Responses.Value(strconv.Itoa(a.status))
	if response == nil {
		return fmt.Errorf("the status is not documented")
	}
	for name := range response.Value.Headers {
		if name == "X-Request-Id" && a.Header().Get(name) == "" {
			return fmt.Errorf("header %s is missing", name)
		}
	}
	if op.RequestBody != nil && a.status < 300 && len(bytes.TrimSpace(sent)) > 0 {
		if err := c.fits(sent, operation, "requestBody", "content", "application/json"); err != nil {
			return fmt.Errorf("it was accepted, but the request does not fit: %w", err)
		}
	}
	if r.Method == http.MethodHead || len(response.Value.Content) == 0 {
		if r.Method != http.MethodHead && a.text.Len() > 0 {
			return fmt.Errorf("a body, which is not documented")
		}
		return nil
	}
	media, _, _ := mime.ParseMediaType(a.Header().Get("Content-Type"))
	content := response.Value.Content[media]
	switch {
	case content == nil:
		return fmt.Errorf("content of type %q is not documented", media)
	case !strings.HasSuffix(media, "json"):
		return nil
	}
	if response.Ref != "" {
		return c.fits(a.text.Bytes(), response.Ref, "content", media)
	}
	return c.fits(a.text.Bytes(), operation, "responses", strconv.Itoa(a.status), "content", media)
}

// pointer returns a name as a part of a URL with a JSON pointer.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

// fits compares JSON with the schema of a body: the one at a place below another in the document.
func (c *contract) fits(text []byte, url string, place ...string) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
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

// oddities returns the differences so far. A handler of a client that has gone may still run
// when the tests have ended.
func (c *contract) oddities() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.odd)
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
	for _, odd := range c.oddities() {
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
