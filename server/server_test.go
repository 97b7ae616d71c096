package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/server"
)

// inMemory sends requests of URLs that begin with pipe:// by connections in memory, for which
// bubbles of testing/synctest can wait.
type inMemory struct {
	services sync.Map // the transports, by the host of URLs
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

// dial opens a connection to the service of a URL.
func (n *inMemory) dial(ctx context.Context, base string) (net.Conn, error) {
	scheme, host, _ := strings.Cut(base, "://")
	if scheme != "pipe" {
		return new(net.Dialer).DialContext(ctx, "tcp", host)
	}
	service, _ := n.services.Load(host)
	return service.(*http.Transport).DialContext(ctx, "", "")
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve serves a store in memory, and ends with the test. It compares all answers with the
// OpenAPI document.
func serve(t *testing.T, store driver.Driver, opts ...server.Option) (*server.Server, string) {
	t.Helper()
	s := open(t, store, opts...)
	l, base := network.listen()
	h := &http.Server{Handler: recorded(s)} //nolint:gosec // the test sends its headers
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, base
}

// ask sends a request and returns status and body.
func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	return spokenAs(t, "", method, url, body)
}

// must sends a request that is answered with a status.
func must(t *testing.T, want int, method, url, body string) {
	t.Helper()
	if status, text := ask(t, method, url, body); status != want {
		t.Fatalf("%s %s %s: %d %s, want %d", method, url, body, status, text, want)
	}
}

// read reads a body to its end.
func read(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
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

// hooked is a store that calls before at each call, which may delay or refuse it.
type hooked struct {
	*memdriver.Driver
	before func(ctx context.Context, verb, id string) error // the id is the key for a look
}

// acquires returns a store that calls f at each acquire.
func acquires(d *memdriver.Driver, f func(id string) error) *hooked {
	return &hooked{d, func(_ context.Context, verb, id string) error {
		if verb != "acquire" {
			return nil
		}
		return f(id)
	}}
}

// mute returns a function for hooked, with which the store does not answer the verbs.
func mute(verbs ...string) func(context.Context, string, string) error {
	return func(ctx context.Context, verb, _ string) error {
		if !slices.Contains(verbs, verb) {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

func (s *hooked) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := s.before(ctx, "acquire", req.ID); err != nil {
		return driver.Reply{}, err
	}
	return s.Driver.Acquire(ctx, req)
}

func (s *hooked) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	if err := s.before(ctx, "renew", refs[0].ID); err != nil {
		for i := range refs {
			each(i, driver.Reply{}, err)
		}
		return
	}
	s.Driver.Renew(ctx, refs, each)
}

func (s *hooked) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	if err := s.before(ctx, "release", ref.ID); err != nil {
		return driver.Reply{}, err
	}
	return s.Driver.Release(ctx, ref)
}

func (s *hooked) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if err := s.before(ctx, "inspect", key); err != nil {
		return driver.Snapshot{}, err
	}
	return s.Driver.Inspect(ctx, key)
}

func (s *hooked) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	if err := s.before(ctx, "glance", key); err != nil {
		return driver.Snapshot{}, err
	}
	return s.Driver.Glance(ctx, key)
}

func (s *hooked) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	if err := s.before(ctx, "list", ""); err != nil {
		return nil, "", err
	}
	return s.Driver.List(ctx, prefix, cursor)
}

func (s *hooked) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	if err := s.before(ctx, "break", id); err != nil {
		return driver.Reply{}, err
	}
	return s.Driver.Break(ctx, key, id, reason)
}

// answering is a hooked store that calls after with each answer about a lease, which may delay the
// answer or replace it by an error.
type answering struct {
	hooked
	after func(ctx context.Context, verb, id string, reply driver.Reply) error
}

// answeredBy returns a store that calls only after.
func answeredBy(d *memdriver.Driver, after func(ctx context.Context, verb, id string, reply driver.Reply) error) *answering {
	return &answering{hooked{d, func(context.Context, string, string) error { return nil }}, after}
}

func (s *answering) answer(ctx context.Context, verb, id string, reply driver.Reply, err error) (driver.Reply, error) {
	if err == nil {
		err = s.after(ctx, verb, id, reply)
	}
	return reply, err
}

func (s *answering) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := s.hooked.Acquire(ctx, req)
	return s.answer(ctx, "acquire", req.ID, reply, err)
}

func (s *answering) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	s.hooked.Renew(ctx, refs, func(i int, reply driver.Reply, err error) {
		reply, err = s.answer(ctx, "renew", refs[i].ID, reply, err)
		each(i, reply, err)
	})
}

func (s *answering) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	reply, err := s.hooked.Release(ctx, ref)
	return s.answer(ctx, "release", ref.ID, reply, err)
}

func (s *answering) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	reply, err := s.hooked.Break(ctx, key, id, reason)
	return s.answer(ctx, "break", id, reply, err)
}
