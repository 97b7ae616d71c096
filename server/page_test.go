package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
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
	base := listenInMemory(t, memdriver.New()) // the document is of a service with a page
	for _, path := range []string{"/", "/ui/app.js", "/v1/overview", "/v1/overview/health"} {
		refused(t, ask(t, "GET", base+path, ""), server.NotFound)
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
		got := ask(t, "GET", base+rt.Path, "")
		policy := got.header.Get("Content-Security-Policy")
		if got.status != 200 || got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("Content-Type") != rt.Media+"; charset=utf-8" {
			t.Errorf("%s: %d %v", rt.Path, got.status, got.header)
		}
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s", rt.Path, policy)
		}
		if text := answered(t, 304, ask(t, "GET", base+rt.Path, "", "If-None-Match", got.header.Get("ETag"))); text != "" {
			t.Errorf("%s again: %q", rt.Path, text)
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

// The page offers a break to those who may, if it is not one that only reads.
func TestPage_ShowsWhatThePrincipalMayReadAndNothingElse(t *testing.T) {
	for _, row := range []struct {
		who  string
		mode server.PageMode
		rows int
		may  string
	}{{"admin", server.PageFull, 2, "true"}, {"desk", server.PageFull, 1, "false"}, {"admin", server.PageRead, 2, "false"}} {
		file, _ := openAuth(t, roles())
		_, base := serve(t, memdriver.New(), server.WithPage(row.mode), server.WithAuthenticator(file))
		for _, key := range []string{"orders/1", "secret/2"} {
			answered(t, 201, askAs(t, "admin", "POST", base+"/v1/locks", fmt.Sprintf(`{"key":%q,"leaseId":"a"}`, key)))
		}
		text := answered(t, 200, askAs(t, row.who, "GET", base+"/v1/overview", ""))
		if n := strings.Count(text, `"key":`); n != row.rows || strings.Contains(text, "secret") == (row.rows == 1) || !strings.Contains(text, `"principal":"`+row.who) {
			t.Errorf("%s: %s", row.who, text)
		}
		text = answered(t, 200, askAs(t, row.who, "GET", base+"/v1/overview/lock?name=orders%2F1", ""))
		if !strings.Contains(text, `"mayBreak":`+row.may) {
			t.Errorf("%s, %v: %s", row.who, row.mode, text)
		}
		if row.rows == 1 {
			refused(t, askAs(t, row.who, "GET", base+"/v1/overview/health", ""), server.Forbidden)
		}
	}
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
