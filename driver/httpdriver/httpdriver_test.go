package httpdriver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
)

func TestOpen_RefusesWhatIsNoService(t *testing.T) {
	for _, rawURL := range []string{"", "h:80", "ftp://h", "http://", "http://user:secret@h", "http://h?x=1", "http:u:secret@h", "http:/:secret@h", "http://h?token=secret", "https://h?ca=/none&x=secret", "http://h#x", "http://h:x:y", "http://u:secret:80", "http://:secret:/x", "http://h?timeout=1s;token-file=/x", "http://h?timeout=1s#x"} {
		if _, err := httpdriver.Open(rawURL); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", rawURL, err)
		}
	}
	for what, o := range map[string]httpdriver.Option{
		"nil":              nil,
		"a short timeout":  httpdriver.WithTimeout(time.Millisecond),
		"no token":         httpdriver.WithToken(""),
		"no client":        httpdriver.WithClient(nil),
		"a client's limit": httpdriver.WithClient(&http.Client{Timeout: time.Second}),
	} {
		if _, err := httpdriver.Open("http://h", o); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// request returns a request for a mutex.
func request(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: time.Minute, Since: time.Now()}
}

func TestErrors_TellWhatIsCertainFromWhatIsNot(t *testing.T) {
	closed, err := redistest.Listen() // no other test is given its port
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	answers := func(status int, text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	problem := func(status int, cause string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", wire.ProblemMedia)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"type":"` + wire.ProblemTypes + cause + `","title":"x"}`))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(cut.Close)
	for what, c := range map[string]struct {
		url  string
		want error // nil: the outcome is not known
	}{
		"no listener":           {"http://" + closed.Addr().String(), driver.ErrUnavailable},
		"no such host":          {"http://leasehold.invalid", driver.ErrUnavailable},
		"overloaded":            {problem(503, "unavailable"), driver.ErrUnavailable},
		"not known":             {problem(401, "unauthenticated"), driver.ErrUnavailable},
		"no right":              {problem(403, "forbidden"), driver.ErrUnavailable},
		"too many":              {problem(429, "too-many-waiters"), driver.ErrUnavailable},
		"another path":          {problem(404, "not-found"), driver.ErrUnavailable},
		"invalid":               {problem(400, "invalid"), driver.ErrInvalid},
		"mismatch":              {problem(422, "mismatch"), driver.ErrMismatch},
		"unsupported":           {problem(501, "unsupported"), errors.ErrUnsupported},
		"unknown":               {problem(504, "unknown"), nil},
		"another service":       {answers(404, "not here"), nil},
		"a proxy is overloaded": {answers(503, "<html>"), nil},
		"a proxy's time is up":  {answers(502, "<html>"), nil},
		"a proxy's no":          {answers(403, `{"title":"x","status":403}`), nil},
		"a defect":              {answers(500, ""), nil},
		"a page":                {answers(200, "<html>hello</html>"), nil},
		"a state of the future": {answers(200, `{"state":"floating"}`), nil},
		"a foreign conflict":    {answers(409, `{"title":"x","type":"about:blank"}`), nil},
		"cut off":               {cut.URL, nil},
	} {
		d := open(t, c.url)
		_, err := d.Acquire(t.Context(), request("k", "a"))
		certain := errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrInvalid) ||
			errors.Is(err, driver.ErrMismatch) || errors.Is(err, errors.ErrUnsupported)
		if err == nil || c.want == nil && certain || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTimeout_BoundsACallToASilentService(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The request must be sent within the timeout: otherwise it has certainly had no effect.
	d, err := httpdriver.Open("http://"+l.Addr().String(), httpdriver.WithTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	start := time.Now()
	_, err = d.Acquire(t.Context(), request("k", "a"))
	if err == nil || errors.Is(err, driver.ErrUnavailable) || time.Since(start) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestRenew_OfManyLeasesIsCutIntoRequests(t *testing.T) {
	s, err := server.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var batches atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/leases:renew" {
			batches.Add(1)
		}
		s.ServeHTTP(w, r)
	}))
	defer h.Close()
	d := open(t, h.URL)
	defer d.Close()
	var refs []driver.Ref
	for i := range 300 {
		// Keys of full length, of which every character takes six bytes in JSON.
		key := fmt.Sprintf("%03d%s", i, strings.Repeat("<", 509))
		if reply, err := d.Acquire(t.Context(), request(key, "a")); err != nil || reply.State != driver.Granted {
			t.Fatal(reply, err)
		}
		refs = append(refs, driver.Ref{Key: key, ID: "a", TTL: time.Minute})
	}
	granted := 0
	d.Renew(t.Context(), refs, func(_ int, reply driver.Reply, err error) {
		if err != nil || reply.State != driver.Granted {
			t.Error(reply, err)
		}
		granted++
	})
	if granted != len(refs) || batches.Load() < 2 {
		t.Errorf("%d of %d renewed in %d requests", granted, len(refs), batches.Load())
	}
}

func TestToken_IsSentWithEveryRequestAndThePathIsKept(t *testing.T) {
	var wrong atomic.Int64
	s, err := server.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := httptest.NewServer(http.StripPrefix("/locks", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			wrong.Add(1)
		}
		s.ServeHTTP(w, r)
	})))
	defer h.Close()
	d, err := httpdriver.Open(strings.Replace(h.URL, "http://", "http://:secret@", 1) + "/locks/")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if reply, err := d.Acquire(t.Context(), request("a/b c", "a")); err != nil || reply.State != driver.Granted {
		t.Fatal(reply, err)
	}
	if snap, err := d.Inspect(t.Context(), "a/b c"); err != nil || len(snap.Holders) != 1 {
		t.Error(snap, err)
	}
	sub, err := d.Watch(func(driver.Hint) {})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return sub.Address() != "" })
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if wrong.Load() != 0 {
		t.Errorf("%d requests without the token", wrong.Load())
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come about")
		}
	}
}

// The service ends while a program waits and holds leases through it, and another service
// on the same store takes its address.
func TestRestart_AWaitGoesOn(t *testing.T) {
	store := memdriver.New()
	start := func(listen func() (net.Listener, error)) (*server.Server, string, chan struct{}) {
		s, err := server.New(store.Join())
		if err != nil {
			t.Fatal(err)
		}
		var l net.Listener
		eventually(t, func() bool { // the address may still be in use
			l, err = listen()
			return err == nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(l, nil) // it ends by Close
		}()
		return s, l.Addr().String(), done
	}
	first, addr, done := start(redistest.Listen) // no other test gets its port while it is closed
	client, err := leasehold.New(open(t, "http://"+addr), leasehold.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	held, err := client.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := store.Acquire(t.Context(), request("k", "holder")); err != nil || reply.State != driver.Granted {
		t.Fatal(reply, err)
	}
	got := make(chan error, 1)
	go func() {
		lease, err := client.Mutex("k").Lock(context.WithoutCancel(t.Context()))
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	waiting := func() bool {
		snap, err := store.Inspect(t.Context(), "k")
		return err == nil && len(snap.Waiters) == 1 && snap.Waiters[0].Remaining > 5*time.Second // its waiter has an address for hints
	}
	eventually(t, waiting)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	second, _, done := start(func() (net.Listener, error) { return net.Listen("tcp", addr) })
	defer func() {
		_ = second.Close()
		<-done
	}()
	if reply, err := store.Release(t.Context(), driver.Ref{Key: "k", ID: "holder"}); err != nil || reply.State != driver.Released {
		t.Fatal(reply, err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the wait does not end")
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}

// TestWatch_GivesUpAStreamWhoseEventDoesNotEnd plays a service that sends one event without
// an end, in short lines.
func TestWatch_GivesUpAStreamWhoseEventDoesNotEnd(t *testing.T) {
	const most = 32 << 20 // includes the bytes in the buffers of the sockets
	line := []byte("data: " + strings.Repeat(" ", 32<<10) + "\n")
	sent := make(chan int, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		defer func() { sent <- n }()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("event: granted\n"))
		for err := error(nil); err == nil && n < most; n += len(line) {
			_, err = w.Write(line)
		}
	}))
	defer s.Close()
	d, err := httpdriver.Open(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sub, err := d.Watch(func(h driver.Hint) { t.Errorf("hint %+v", h) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	select {
	case n := <-sent:
		if n >= most {
			t.Errorf("the driver has read %d bytes of one event", n)
		}
	case <-time.After(time.Minute):
		t.Error("the stream was neither read nor given up")
	}
}

// cleaned returns a handler that passes each request on as a proxy does that decodes paths
// and cleans them.
func cleaned(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path, r.URL.RawPath = path.Clean(r.URL.Path), ""
		h.ServeHTTP(w, r)
	})
}

// Different names stay different locks behind a proxy that cleans paths.
func TestDriver_KeepsNamesBehindAProxyThatCleansPaths(t *testing.T) {
	store := memdriver.New()
	s, err := server.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	proxy := httptest.NewServer(cleaned(s))
	t.Cleanup(proxy.Close)
	d := open(t, proxy.URL)
	t.Cleanup(func() { _ = d.Close() })
	names := []string{".", "..", "./data", "data", "a/../b", "b", "a//b", "a/b", "a/b/", "a%2Fb", "/", "//", "x:break", "?", "#", "é"}
	for _, name := range names {
		if got, err := d.Acquire(t.Context(), request(name, "a")); err != nil || got.State != driver.Granted {
			t.Errorf("acquire of %q: %+v, %v", name, got, err)
		}
	}
	for _, name := range names {
		if snap, err := d.Inspect(t.Context(), name); err != nil || snap.Key != name || len(snap.Holders) != 1 {
			t.Errorf("inspect of %q: %+v, %v", name, snap, err)
		}
		if snap, err := d.Glance(t.Context(), name); err != nil || snap.Key != name || len(snap.Holders) != 1 {
			t.Errorf("glance at %q: %+v, %v", name, snap, err)
		}
		d.Renew(t.Context(), []driver.Ref{{Key: name, ID: "a", TTL: time.Minute}}, func(_ int, got driver.Reply, err error) {
			if err != nil || got.State != driver.Granted {
				t.Errorf("renewal of %q: %+v, %v", name, got, err)
			}
		})
		if got, err := d.Release(t.Context(), driver.Ref{Key: name, ID: "a"}); err != nil || got.State != driver.Released {
			t.Errorf("release of %q: %+v, %v", name, got, err)
		}
		if got, err := d.Acquire(t.Context(), request(name, "b")); err != nil || got.State != driver.Granted {
			t.Errorf("acquire of %q after its release: %+v, %v", name, got, err)
		}
		if got, err := d.Break(t.Context(), name, "b", "a test"); err != nil || got.State != driver.Released {
			t.Errorf("break of %q: %+v, %v", name, got, err)
		}
	}
}

// A proxy that changes names asks for "data" instead of "./data".
func TestAcquire_AnswerForAnotherLockIsUndone(t *testing.T) {
	store := memdriver.New()
	s, err := server.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(text, []byte(`"./data"`), []byte(`"data"`))))
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	d, err := httpdriver.Open(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	refused := func(id string) {
		t.Helper()
		if got, err := d.Acquire(t.Context(), request("./data", id)); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), `answers for lock "data"`) {
			t.Errorf("./data: %+v, %v, want an error that names the other lock", got, err)
		}
	}
	refused("a")
	if snap, err := store.Inspect(t.Context(), "data"); err != nil || len(snap.Holders) > 0 {
		t.Errorf("left behind: %+v, %v", snap, err)
	}
	if got, err := d.Acquire(t.Context(), request("data", "b")); err != nil || got.State != driver.Granted {
		t.Fatalf("data: %+v, %v", got, err)
	}
	refused("c") // and not that the lock is held
}
