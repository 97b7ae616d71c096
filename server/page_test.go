package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

// overviews are the routes of what the page shows.
func overviews(s *server.Server) (all []*server.Route) {
	for _, rt := range s.Routes() {
		if strings.HasPrefix(rt.Operation, "overview") {
			all = append(all, &rt)
		}
	}
	return all
}

func TestPage_IsNotServedUnlessAskedFor(t *testing.T) {
	s, err := server.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := httptest.NewServer(s) // the document that answers are compared with is of a service with a page
	defer h.Close()
	base := h.URL
	for _, path := range []string{"/", "/ui/app.js", "/v1/overview", "/v1/overview/health"} {
		code, text := ask(t, "GET", base+path, "")
		refused(t, path, code, text, server.NotFound)
	}
}

func TestPage_FilesAreServedToEverybodyAndUnderAStrictPolicy(t *testing.T) {
	file, _ := openAuth(t, roles())
	s, base := serve(t, memdriver.New(), server.WithPage(server.PageRead), server.WithAuthenticator(file))
	n := 0
	for _, rt := range s.Routes() {
		if !strings.HasPrefix(rt.Operation, "page") {
			continue
		}
		n++
		code, header := askAs(t, "", "GET", base+rt.Path, "")
		policy := header.Get("Content-Security-Policy")
		if code != 200 || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Content-Type") != rt.Media+"; charset=utf-8" {
			t.Errorf("%s: %d %v", rt.Path, code, header)
		}
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s", rt.Path, policy)
		}
		code, text := spokenAs(t, "", "GET", base+rt.Path, "", "If-None-Match", header.Get("ETag"))
		if code != 304 || text != "" {
			t.Errorf("%s again: %d %q", rt.Path, code, text)
		}
	}
	if n < 5 {
		t.Errorf("%d files", n)
	}
}

// looked asks for a view, or a lock, until the service has looked at all that it shows: on
// a busy machine it answers before, with what it has after 2 s.
func looked(t *testing.T, who, url string, into any) {
	t.Helper()
	var text string
	eventually(t, func() bool {
		var code int
		code, text = spokenAs(t, who, "GET", url, "")
		if code == 503 {
			return false
		}
		v := struct {
			Listed        bool
			Locks, Looked int
		}{Listed: true} // of one lock there is nothing of the kind
		if err := json.Unmarshal([]byte(text), &v); code != 200 || err != nil {
			t.Fatalf("%s: %s: %d %v %s", who, url, code, err, text)
		}
		return v.Listed && v.Looked == v.Locks
	})
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %s: %v", who, url, err)
	}
}

func TestPage_ShowsWhoHoldsAndWhoWaits(t *testing.T) {
	store := memdriver.New()
	_, base := serve(t, store, server.WithPage(server.PageFull), server.WithStoreName("memory:"))
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	ask(t, "POST", base+"/v1/locks/orders%2F42", `{"leaseId":"a","owner":"worker-7:4711","since":"`+since+`"}`)
	ask(t, "POST", base+"/v1/locks/orders%2F42", `{"leaseId":"b","owner":"worker-8:1","ticketMs":60000}`)
	var v struct {
		Total, Locks, Waiting int
		Keys                  []string
		Rows                  []struct {
			Key, Kind, State string
			Waiters          int
			HeldMs           int64
			Holders          []struct{ Owner, LeaseID string }
		}
		Branches []struct {
			Prefix string
			Locks  int
		}
	}
	looked(t, "", base+"/v1/overview?search=WORKER-7&sort=held&order=down&offset=0&limit=10", &v)
	if v.Total != 1 || v.Locks != 1 || v.Waiting != 1 || len(v.Rows) != 1 || len(v.Branches) != 1 || v.Branches[0].Prefix != "orders/" {
		t.Fatalf("%+v", v)
	}
	if r := v.Rows[0]; r.Key != "orders/42" || r.Kind != "mutex" || r.State != "held" || r.Waiters != 1 || r.HeldMs < time.Hour.Milliseconds() || r.Holders[0].Owner != "worker-7:4711" {
		t.Errorf("%+v", r)
	}
	ask(t, "POST", base+"/v1/locks/orders%2F42:break", `{"leaseId":"a","reason":"stuck"}`)
	var one struct {
		Queue    int
		MayBreak bool
		Events   []struct{ Kind, LeaseID, Owner, By, Reason string }
	}
	looked(t, "", base+"/v1/overview/locks/orders%2F42", &one)
	if len(one.Events) < 3 || !one.MayBreak {
		t.Fatalf("%+v", one)
	}
	broke := false
	for _, e := range one.Events {
		broke = broke || e.Kind == "broken" && e.LeaseID == "a" && e.Owner == "worker-7:4711" && e.By != "" && e.Reason == "stuck"
	}
	if !broke {
		t.Errorf("the break is not told of: %+v", one.Events)
	}
	var h struct {
		Store   string
		Samples []struct{ Broken int }
	}
	answer(t, "GET", base+"/v1/overview/health", "", 200, &h)
	n := 0
	for _, s := range h.Samples {
		n += s.Broken
	}
	if h.Store != "memory:" || n != 1 {
		t.Errorf("%+v", h)
	}
}

// follow returns the events of a stream of the page.
func follow(t *testing.T, url, token string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != 200 {
		t.Fatalf("%s: %d", url, res.StatusCode)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				lines <- data
			}
		}
	}()
	return lines
}

// hears waits for an event that has a text.
func hears(t *testing.T, events <-chan string, text string) {
	t.Helper()
	late := time.After(time.Minute)
	last := ""
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the stream has ended before %q; the last was %s", text, last)
			}
			if last = e; strings.Contains(e, text) {
				return
			}
		case <-late:
			t.Fatalf("%q never came; the last was %s", text, last)
		}
	}
}

func TestPage_StreamsTellOfWhatHappensHereAndElsewhere(t *testing.T) {
	store := memdriver.New()
	_, base := serve(t, store, server.WithPage(server.PageFull))
	locks := follow(t, base+"/v1/overview/events", "")
	one := follow(t, base+"/v1/overview/events?show=lock&name=k", "")
	health := follow(t, base+"/v1/overview/events?show=health", "")
	hears(t, one, `"state":"free"`)
	ask(t, "POST", base+"/v1/locks/k", `{"leaseId":"here"}`)
	hears(t, locks, `"here"`)
	hears(t, one, `"here"`)
	if _, err := store.Acquire(t.Context(), driver.Request{Key: "other", ID: "elsewhere", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	hears(t, locks, `"elsewhere"`)
	ask(t, "DELETE", base+"/v1/locks/k/leases/here", "")
	hears(t, one, `"kind":"released"`)
	hears(t, health, `"acquisitions":`)
}

func TestPage_ShowsWhatThePrincipalMayReadAndNothingElse(t *testing.T) {
	file, _ := openAuth(t, roles())
	store := memdriver.New()
	_, base := serve(t, store, server.WithPage(server.PageFull), server.WithAuthenticator(file))
	for _, key := range []string{"orders/1", "secret/2"} {
		if code, _ := askAs(t, "admin", "POST", base+"/v1/locks/"+strings.ReplaceAll(key, "/", "%2F"), `{"leaseId":"a"}`); code != 201 {
			t.Fatal(key, code)
		}
	}
	for who, want := range map[string]int{"admin": 2, "desk": 1} {
		var v struct{ Locks int }
		if looked(t, who, base+"/v1/overview", &v); v.Locks != want {
			t.Errorf("%s: %d locks, want %d", who, v.Locks, want)
		}
	}
	for _, path := range []string{"/v1/overview/locks/secret%2F2", "/v1/overview/health", "/v1/overview/events?show=lock&name=secret%2F2", "/v1/overview/events?show=health"} {
		code, text := spokenAs(t, "desk", "GET", base+path, "")
		refused(t, path, code, text, server.Forbidden)
	}
}

// fragile fails to say who asks.
type fragile struct{}

func (fragile) Authenticate(*http.Request) (auth.Principal, error) { panic("defect") }

// veiled is a store that does not show its locks.
type veiled struct{ *memdriver.Driver }

func (veiled) Inspect(ctx context.Context, _ string) (driver.Snapshot, error) {
	<-ctx.Done()
	return driver.Snapshot{}, ctx.Err()
}

func (v veiled) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return v.Inspect(ctx, key)
}

func (veiled) List(ctx context.Context, _, _ string) ([]string, string, error) {
	<-ctx.Done()
	return nil, "", ctx.Err()
}

func TestPage_WhatFailsIsToldApart(t *testing.T) {
	t.Run("no inspector", func(t *testing.T) {
		t.Parallel()
		s, base := serve(t, struct{ driver.Driver }{memdriver.New()}, server.WithPage(server.PageFull))
		for _, rt := range overviews(s) {
			if rt.Operation == "overviewHealth" {
				continue
			}
			code, text := ask(t, rt.Method, base+aim(rt, "k", "a"), "")
			refused(t, rt.Operation, code, text, server.Unsupported)
		}
	})
	t.Run("a defect", func(t *testing.T) {
		t.Parallel()
		s, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithAuthenticator(fragile{}))
		for _, rt := range overviews(s) {
			code, text := ask(t, rt.Method, base+aim(rt, "k", "a"), "")
			refused(t, rt.Operation, code, text, server.Internal)
		}
	})
	t.Run("a store that does not answer", func(t *testing.T) {
		t.Parallel()
		_, base := serve(t, veiled{memdriver.New()}, server.WithPage(server.PageFull))
		code, text := ask(t, "GET", base+"/v1/overview/locks/k", "")
		refused(t, "one lock", code, text, server.Unavailable)
	})
	t.Run("what is out of bounds", func(t *testing.T) {
		t.Parallel()
		_, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithMaxWaiters(1, 1))
		for _, path := range []string{
			"/v1/overview?sort=colour", "/v1/overview?limit=x", "/v1/overview?offset=-1", "/v1/overview?search=" + strings.Repeat("x", 513),
			"/v1/overview/events?show=all", "/v1/overview/events?show=lock", "/v1/overview/locks/" + strings.Repeat("x", 513),
		} {
			code, text := ask(t, "GET", base+path, "")
			refused(t, path, code, text, server.Invalid)
		}
		follow(t, base+"/v1/overview/events", "")
		code, text := ask(t, "GET", base+"/v1/overview/events", "")
		refused(t, "a stream too many", code, text, server.TooMany)
	})
	t.Run("nobody knows who asks", func(t *testing.T) {
		t.Parallel()
		file, _ := openAuth(t, roles())
		s, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithAuthenticator(file))
		for _, rt := range overviews(s) {
			code, text := spokenAs(t, "", rt.Method, base+aim(rt, "k", "a"), "")
			refused(t, rt.Operation, code, text, server.Unauthenticated)
		}
	})
}

// unsafe is a store that says of itself that it is.
type unsafe struct{ *memdriver.Driver }

func (unsafe) Check(context.Context) (driver.Report, error) {
	var r driver.Report
	r.Add(driver.Unsafe, "eviction", "maxmemory-policy is allkeys-lru", "a lock that is held may be thrown away", "set noeviction")
	r.Add(driver.Warning, "persistence", "no append-only file", "a restart forgets locks", "")
	r.Findings[0].Subject = "db1:6379"
	return r, nil
}

func TestPage_AnUnsafeStoreIsAFlagOfAllLocks(t *testing.T) {
	file, _ := openAuth(t, roles())
	_, base := serve(t, unsafe{memdriver.New()}, server.WithPage(server.PageFull), server.WithAuthenticator(file))
	for who, want := range map[string]string{
		"admin": "The store is unsafe for locks: db1:6379: maxmemory-policy is allkeys-lru: a lock that is held may be thrown away. Set noeviction.",
		"desk":  "The store is unsafe for locks: two may hold one, or none can be had. Those who run it see why under Health.",
	} {
		for _, path := range []string{"/v1/overview", "/v1/overview/locks/orders%2F1"} {
			var v struct {
				Store []struct{ Name, Severity, Text string }
			}
			looked(t, who, base+path, &v)
			if len(v.Store) != 1 || v.Store[0].Name != "store-unsafe" || v.Store[0].Severity != "bad" || v.Store[0].Text != want {
				t.Errorf("%s, %s: %+v", who, path, v.Store)
			}
		}
	}
}

// counted counts what a store is asked.
type counted struct {
	*memdriver.Driver
	asked chan struct{}
}

func (c *counted) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	c.asked <- struct{}{}
	return c.Driver.Inspect(ctx, key)
}

func (c *counted) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	c.asked <- struct{}{}
	return c.Driver.List(ctx, prefix, cursor)
}

func TestPage_ManyPagesAskTheStoreNoMoreThanOne(t *testing.T) {
	store := &counted{memdriver.New(), make(chan struct{}, 1<<20)}
	_, base := serve(t, store, server.WithPage(server.PageFull))
	for i := range 2000 {
		if _, err := store.Acquire(t.Context(), driver.Request{Key: fmt.Sprint("k", i), ID: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		follow(t, fmt.Sprintf("%s/v1/overview/events?offset=%d", base, i*50), "")
	}
	before, began := len(store.asked), time.Now()
	eventually(t, func() bool { return len(store.asked)-before > 300 })
	n, took := len(store.asked)-before, time.Since(began)
	// A turn that was late is followed by another one at once.
	if most := 200*(took.Seconds()+1) + 20; float64(n) > most {
		t.Errorf("%d requests in %v, more than %.0f", n, took, most)
	}
}
