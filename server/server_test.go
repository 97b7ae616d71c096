package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/server"
)

// inMemory sends requests of URLs that begin with pipe:// by connections in memory, for which
// bubbles of testing/synctest can wait.
type inMemory struct {
	services sync.Map // the transports, by the host of URLs
	judged   sync.Map // the hosts whose answers are compared with the OpenAPI document
	hosts    atomic.Int64
}

var network inMemory

func init() { http.DefaultTransport.(*http.Transport).RegisterProtocol("pipe", &network) }

// listen returns a listener in memory, and the beginning of its URLs.
func (n *inMemory) listen() (l *pipenet.Listener, base string) {
	l = pipenet.Listen()
	host := fmt.Sprint("127.0.0.1:", n.hosts.Add(1))
	n.services.Store(host, &http.Transport{DialContext: l.Dial})
	return l, "pipe://" + host
}

// RoundTrip implements [http.RoundTripper].
func (n *inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	service, _ := n.services.Load(r.URL.Host)
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return service.(*http.Transport).RoundTrip(r)
}

// bubble runs a subtest in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// open returns the service of a store, and closes it at the end of the test.
func open(t testing.TB, store driver.Driver, opts ...server.Option) *server.Server {
	t.Helper()
	s, err := server.New(store, opts...)
	noErr(t, err)
	t.Cleanup(func() {
		noErr(t, s.Close())
	})
	return s
}

// serve serves a store in memory, and ends with the test. It compares all answers with the
// OpenAPI document.
func serve(t *testing.T, store driver.Driver, opts ...server.Option) (*server.Server, string) {
	t.Helper()
	s := open(t, store, opts...)
	l, base := network.listen()
	network.judged.Store(strings.TrimPrefix(base, "pipe://"), true)
	h := &http.Server{Handler: s} //nolint:gosec // the test sends its headers
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() {
		noErr(t, h.Close())
	})
	return s, base
}

// exchange is a request and its answer.
type exchange struct {
	who, method, url, sent string
	status                 int
	header                 http.Header
	body                   string
}

// judge compares the answer with the document, if it is of a service of serve.
func (x *exchange) judge() {
	host, _, _ := strings.Cut(x.url[strings.Index(x.url, "://")+len("://"):], "/")
	if _, ok := network.judged.Load(host); ok {
		theContract().judge(x)
	}
}

// String describes the request, for failures.
func (x exchange) String() string {
	return fmt.Sprintf("%s: %s %.80s %.80s", x.who, x.method, x.url, x.sent)
}

// ask sends a request, with headers in pairs, and returns the answer. It may be called by any
// goroutine.
func ask(t testing.TB, method, url, body string, header ...string) exchange {
	t.Helper()
	got := exchange{method: method, url: url, sent: body}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return got
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return got
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	got.status, got.header, got.body = res.StatusCode, res.Header, string(text)
	got.judge()
	return got
}

// askAs sends a request of a principal, whose token is its name.
func askAs(t testing.TB, who, method, url, body string, header ...string) exchange {
	t.Helper()
	got := ask(t, method, url, body, append(header, "Authorization", "Bearer "+who)...)
	got.who = who
	return got
}

// answered checks the status of an answer, and returns the body.
func answered(t testing.TB, want int, got exchange) string {
	t.Helper()
	if got.status != want {
		t.Errorf("%s: %d %.300s, want %d", got, got.status, got.body, want)
	}
	return got.body
}

// refused checks that an answer is a problem of the cause.
func refused(t testing.TB, got exchange, cause *server.Cause) {
	t.Helper()
	if got.status != cause.Status || !strings.Contains(got.body, cause.Type()+`"`) {
		t.Errorf("%s: %d %.300s, want %d %s", got, got.status, got.body, cause.Status, cause.Name)
	}
}

// must sends a request, and ends the test if the answer has another status.
func must(t testing.TB, want int, method, url, body string) string {
	t.Helper()
	got := ask(t, method, url, body)
	if got.status != want {
		t.Fatalf("%s: %d %s, want %d", got, got.status, got.body, want)
	}
	return got.body
}

// answer does the same, and decodes the body.
func answer(t testing.TB, method, url, body string, want int, into any) {
	t.Helper()
	text := must(t, want, method, url, body)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

// noErr ends the test if err is not nil.
func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read reads a body to its end.
func read(t testing.TB, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	noErr(t, err)
	return string(text)
}

// safe is a buffer for several goroutines.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
