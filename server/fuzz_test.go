package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/operations"
)

// target is a service that is called without a network.
type target struct {
	http.Handler
	store driver.Driver
}

func newTarget(f *testing.F, store driver.Driver) *target {
	f.Helper()
	s, err := server.New(store, server.WithMaxWait(time.Second), server.WithOperation(operations.Simulate(0)))
	noErr(f, err)
	f.Cleanup(func() { _ = s.Close() })
	return &target{s, store}
}

// ask sends a request, skips the test if its answer is held back, and fails it at a defect.
func (g *target) ask(t *testing.T, method, path, body string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	at, err := url.ParseRequestURI(path)
	skip.Unless(t, err == nil, "a path that net/http accepts")
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", strings.NewReader(body))
	r.Method, r.URL = method, at
	r.Header = header
	w := httptest.NewRecorder()
	skip.Unless(t, served(g, w, r) && ctx.Err() == nil, "a request that does not wait")
	if w.Code >= 500 {
		t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if w.Body.Len() > 0 && strings.HasSuffix(w.Header().Get("Content-Type"), "json") && !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s %s: %s is not JSON", method, path, w.Body)
	}
	return w
}

// served reports whether a request is answered, and not cut off.
func served(h http.Handler, w http.ResponseWriter, r *http.Request) (ok bool) {
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // net/http panics with this value
			panic(v)
		}
	}()
	h.ServeHTTP(w, r)
	return true
}

// free releases the lease or place in an answer.
func (g *target) free(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	var l struct{ Key, LeaseID string }
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || l.LeaseID == "" {
		t.Fatalf("%d without a lease: %s", w.Code, w.Body)
	}
	if _, err := g.store.Release(context.Background(), driver.Ref{Key: l.Key, ID: l.LeaseID}); err != nil {
		t.Error(err)
	}
}

func FuzzAcquireBody(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `{"leaseId":"a","mode":"shared","limit":3,"permits":2,"ttlMs":1000,"waitMs":1,"owner":"é","labels":{"a":"b"}}`,
		`{"resize":true,"limit":3,"mode":"shared"}`, `{"reentrant":true,"owner":"a","policy":"barging","minToken":1,"lockDelayMs":1}`,
		`{"ttlMs":1e3}`, `{"since":"2026-01-02T03:04:05Z"}`, `{"ticketMs":0,"notify":"mem-9","confirmMs":1}`, "{\"owner\":\"\\ud800\"}",
	} {
		f.Add([]byte(body))
	}
	g := newTarget(f, memdriver.New())
	f.Fuzz(func(t *testing.T, body []byte) {
		w := g.ask(t, "POST", "/v1/locks/k", string(body), nil)
		switch w.Code {
		case 200, 201, 202:
			if strings.Contains(w.Body.String(), `"state":"resized"`) || strings.Contains(w.Body.String(), `"state":"gone"`) {
				return
			}
			g.free(t, w)
		case 400, 409, 410, 413, 422:
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func FuzzOtherBodies(f *testing.F) {
	for which, body := range map[byte]string{
		0: `{"ttlMs":1000,"ticketMs":1,"minToken":7,"notify":"mem-9"}`,
		1: `{"leases":[{"key":"k","leaseId":"a","ttlMs":1000},{"key":"","leaseId":"-"}]}`,
		2: `{"leaseId":"a","reason":"stuck"}`,
	} {
		f.Add(which, []byte(body))
	}
	g := newTarget(f, memdriver.New())
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		to := [][2]string{{"PUT", "/v1/locks/k/leases/a"}, {"POST", "/v1/leases:renew"}, {"POST", "/v1/locks/k:break"}}[which%3]
		switch w := g.ask(t, to[0], to[1], string(body), nil); w.Code {
		case 400, 404, 410, 413:
		case 200:
			if which%3 != 1 {
				t.Errorf("%s %s: %s", to[0], to[1], w.Body) // nothing is held
			}
		default:
			t.Errorf("%s %s: %d %s", to[0], to[1], w.Code, w.Body)
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, path := range []string{
		"/v1/locks/a%2Fb", "/v1/locks/..", "/v1/locks/%2e%2e/leases/a", "/v1/locks/a:break", "/v1/locks/a%3Abreak", "/v1/locks/%00",
		"/v1/locks//leases/", "/v1/leases:renew", "/v1/locks?prefix=%FF&cursor=%", "/v1/locks/k/leases/a?keepMs=1&forbidMs=9e9",
		"/api/locks/simple/%C3%A9", "/openapi.json/", "//", "/v1/events?name=", "/v1/locks/%zz",
	} {
		for which := range byte(5) {
			f.Add(which, path)
		}
	}
	g := newTarget(f, memdriver.New())
	f.Fuzz(func(t *testing.T, which byte, path string) {
		methods := []string{"GET", "POST", "PUT", "DELETE", "HEAD"}
		w := g.ask(t, methods[int(which)%len(methods)], path, "", nil)
		if w.Code == 201 {
			g.free(t, w)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add(`wait=30`, `W/"0123456789abcdef"`, `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`)
	f.Add(`return=representation, wait="1"`, `*`, ``)
	f.Add(`wait=18446744073709551616; x`, `"a", W/"b`, `00-`)
	f.Add(`wait=-1,wait`, `,,`, `ff-0-0-0`)
	g := newTarget(f, memdriver.New())
	f.Fuzz(func(t *testing.T, prefer, tag, trace string) {
		header := http.Header{"Prefer": {prefer}, "If-None-Match": {tag}, "Traceparent": {trace}}
		w := g.ask(t, "GET", "/v1/locks/k", "", header)
		if w.Code != 200 && w.Code != 304 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if id := w.Header().Get("X-Request-Id"); len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
			t.Errorf("request id %q", id)
		}
		if w = g.ask(t, "DELETE", "/v1/locks/k/leases/a", "", header); w.Code != 410 && w.Code != 200 && w.Code != 204 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, cursor := range []string{"", "k1", "0/", "7/ab", "-1/", "99999999999999999999/x", "server 12", "/", "é"} {
		f.Add("k", cursor)
	}
	files, err := filedriver.Open(f.TempDir())
	noErr(f, err)
	var all []*target
	for _, store := range []driver.Driver{memdriver.New(), files} {
		g := newTarget(f, store)
		all = append(all, g)
		for _, key := range []string{"k1", "k2", "other"} {
			if _, err := store.Acquire(context.Background(), driver.Request{Key: key, ID: key, TTL: time.Hour}); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Fuzz(func(t *testing.T, prefix, cursor string) {
		query := url.Values{"prefix": {prefix}, "cursor": {cursor}}.Encode()
		for _, g := range all {
			w := g.ask(t, "GET", "/v1/locks?"+query, "", nil)
			var page struct{ Keys []string }
			switch {
			case w.Code == 400:
			case w.Code != 200:
				t.Errorf("%d %s", w.Code, w.Body)
			case json.Unmarshal(w.Body.Bytes(), &page) != nil:
				t.Errorf("not a page: %s", w.Body)
			}
			for _, key := range page.Keys {
				if !strings.HasPrefix(key, prefix) {
					t.Errorf("%q does not begin with %q", key, prefix)
				}
			}
		}
	})
}
