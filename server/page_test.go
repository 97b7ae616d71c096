package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/internal/overview"
)

// overviews returns the routes of the page's data.
func overviews(s *server.Server) (all []*server.Route) {
	for _, rt := range s.Routes() {
		if strings.HasPrefix(rt.Operation, "overview") {
			all = append(all, &rt)
		}
	}
	return all
}

func TestPage_IsNotServedUnlessAskedFor(t *testing.T) {
	s := open(t, memdriver.New())
	h := httptest.NewServer(s) // the answers are compared with the document of a service with a page
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

func TestPage_ShowsWhoHoldsAndWhoWaits(t *testing.T) {
	_, base := serve(t, unsafe{memdriver.New()}, server.WithPage(server.PageFull), server.WithStoreName("memory:"))
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	ask(t, "POST", base+"/v1/locks/orders%2F42", `{"leaseId":"a","owner":"worker-7:4711","since":"`+since+`"}`)
	ask(t, "POST", base+"/v1/locks/orders%2F42", `{"leaseId":"b","owner":"worker-8:1","ticketMs":60000}`)
	ask(t, "POST", base+"/v1/locks/other", `{"leaseId":"c"}`)
	var v overview.View
	answer(t, "GET", base+"/v1/overview?prefix=orders%2F", "", 200, &v)
	if len(v.Rows) != 1 || v.Mode != "full" || v.Principal != "" {
		t.Fatalf("%+v", v)
	}
	if r := v.Rows[0]; r.Key != "orders/42" || r.State != "held" || r.Held != 1 || r.Queue != 1 || r.Holders[0].Age < wire.MillisOf(time.Hour) || r.Holders[0].Owner != "worker-7:4711" {
		t.Errorf("%+v", r)
	}
	var one server.One
	answer(t, "GET", base+"/v1/overview/lock?name=orders%2F42", "", 200, &one)
	if !one.MayBreak || one.Waiters[0].Owner != "worker-8:1" {
		t.Errorf("%+v", one)
	}
	var h overview.Vitals
	answer(t, "GET", base+"/v1/overview/health", "", 200, &h)
	if h.Store != "memory:" || h.Failing || h.Since.IsZero() || h.Checked.IsZero() || len(h.Findings) != 2 || len(h.Nodes) != 1 ||
		h.Findings[0] != (overview.Finding{Severity: "unsafe", Check: "eviction", Subject: "db1:6379", What: "maxmemory-policy is allkeys-lru", Why: "a lock that is held may be thrown away", Remedy: "set noeviction"}) {
		t.Errorf("%+v", h)
	}
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
		_, text := spokenAs(t, who, "GET", base+"/v1/overview", "")
		if n := strings.Count(text, `"key":`); n != want || strings.Contains(text, "secret") == (want == 1) || !strings.Contains(text, `"principal":"`+who) {
			t.Errorf("%s: %s", who, text)
		}
	}
	for _, path := range []string{"/v1/overview/lock?name=secret%2F2", "/v1/overview/health"} {
		code, text := spokenAs(t, "desk", "GET", base+path, "")
		refused(t, path, code, text, server.Forbidden)
	}
}

func TestPage_OffersABreakToThoseWhoMay(t *testing.T) {
	for _, row := range []struct {
		who, lock string
		mode      server.PageMode
		may       string
	}{
		{"admin", "orders%2F1", server.PageFull, "true"}, {"desk", "orders%2F1", server.PageFull, "false"}, {"admin", "orders%2F1", server.PageRead, "false"},
	} {
		file, _ := openAuth(t, roles())
		_, base := serve(t, memdriver.New(), server.WithPage(row.mode), server.WithAuthenticator(file))
		if code, text := spokenAs(t, row.who, "GET", base+"/v1/overview/lock?name="+row.lock, ""); code != 200 || !strings.Contains(text, `"mayBreak":`+row.may) {
			t.Errorf("%s on %s: %d %s", row.who, row.lock, code, text)
		}
	}
}

// fragile is an authenticator that panics.
type fragile struct{}

func (fragile) Authenticate(*http.Request) (auth.Principal, error) { panic("defect") }

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
		_, base := serve(t, &hooked{memdriver.New(), mute("inspect", "glance", "list")}, server.WithPage(server.PageFull), server.WithStoreTimeout(50*time.Millisecond))
		for _, path := range []string{"/v1/overview/lock?name=k", "/v1/overview"} {
			code, text := ask(t, "GET", base+path, "")
			refused(t, path, code, text, server.Unavailable)
		}
		var h overview.Vitals
		if answer(t, "GET", base+"/v1/overview/health", "", 200, &h); !h.Failing {
			t.Errorf("%+v", h)
		}
	})
	t.Run("what is out of bounds", func(t *testing.T) {
		t.Parallel()
		_, base := serve(t, memdriver.New(), server.WithPage(server.PageFull))
		long := strings.Repeat("x", 513)
		for _, path := range []string{"/v1/overview?prefix=" + long, "/v1/overview?cursor=" + strings.Repeat(long, 8), "/v1/overview/lock?name=" + long} {
			code, text := ask(t, "GET", base+path, "")
			refused(t, path, code, text, server.Invalid)
		}
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

// unsafe is a store that reports that its locks are unsafe.
type unsafe struct{ *memdriver.Driver }

func (unsafe) Check(context.Context) (driver.Report, error) {
	var r driver.Report
	r.Add(driver.Unsafe, "eviction", "maxmemory-policy is allkeys-lru", "a lock that is held may be thrown away", "set noeviction")
	r.Add(driver.Warning, "persistence", "no append-only file", "a restart forgets locks", "")
	r.Findings[0].Subject = "db1:6379"
	r.Nodes = []driver.Node{{Name: "db1:6379", Server: "run-1"}}
	return r, nil
}
