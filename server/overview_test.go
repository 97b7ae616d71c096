package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/internal/overview"
)

// fill puts n locks into a store.
func fill(t *testing.T, store driver.Driver, n int, format string) {
	t.Helper()
	for i := range n {
		if _, err := store.Acquire(t.Context(), driver.Request{Key: fmt.Sprintf(format, i), ID: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
}

// paged is a store with short pages of its list.
type paged struct{ *memdriver.Driver }

func (p paged) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	keys, _, err := p.Driver.List(ctx, prefix, cursor)
	if len(keys) <= 10 {
		return keys, "", err
	}
	return keys[:10], keys[9], err
}

func TestOverview_TellsNoNameThatTheReaderMayNotKnow(t *testing.T) {
	file, _ := openAuth(t, roles())
	store := paged{memdriver.New()}
	_, base := serve(t, store, server.WithPage(server.PageFull), server.WithAuthenticator(file))
	fill(t, store, 300, "secret/%04d")
	for _, cursor := range []string{"at=secret%2F0001", "secret/0001", ""} {
		var v overview.View
		text := askAs(t, "desk", "GET", base+"/v1/overview?prefix=s&cursor="+url.QueryEscape(cursor), "").body
		if strings.Contains(text, "secret") || !strings.Contains(text, `"rows":[]`) {
			t.Fatalf("%q: %.300s", cursor, text)
		}
		noErr(t, json.Unmarshal([]byte(text), &v))
		if opened, err := base64.RawURLEncoding.DecodeString(v.Cursor); err != nil || strings.Contains(string(opened), "secret") {
			t.Fatalf("%q, %v", opened, err)
		}
		if cursor == "" && v.Cursor == "" {
			t.Error("all names were read for one view")
		}
	}
}

func TestOverview_OneClientLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, _ := openAuth(t, roles())
		store := memdriver.New()
		_, base := serve(t, store, server.WithPage(server.PageFull), server.WithAuthenticator(file))
		fill(t, store, 3, "orders/%d")
		ctx, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		var refused atomic.Int64
		for i := range 20 {
			crowd.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					got := askAs(t, "shop", "GET", fmt.Sprintf("%s/v1/overview?prefix=%d-%d", base, i, n), "")
					if got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != "" {
						refused.Add(1)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		for range 3 {
			text := answered(t, 200, askAs(t, "admin", "GET", base+"/v1/overview", ""))
			if strings.Count(text, `"looked":true`) != 3 {
				t.Error(text)
			}
		}
		stop()
		crowd.Wait()
		if refused.Load() == 0 {
			t.Error("no request was refused")
		}
	})
}

func TestOverview_AnswersWithinTwoSecondsAndEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{}, 10)
		s, base := serve(t, before(memdriver.New(), func(ctx context.Context, m *message) error {
			if m.Verb == intercept.List || m.Verb == intercept.Inspect {
				entered <- struct{}{}
				<-ctx.Done()
				entered <- struct{}{}
				return errors.New("too late")
			}
			return nil
		}), server.WithPage(server.PageFull), server.WithStoreTimeout(3*time.Second))
		begin := time.Now()
		refused(t, ask(t, "GET", base+"/v1/overview", ""), server.Unavailable)
		if took := time.Since(begin); took > 2900*time.Millisecond {
			t.Error(took)
		}
		if s.Close(); len(entered) != 2 {
			t.Error("the request to the store goes on")
		}
	})
}

func TestOverview_IsRefusedForTooManyRequestsAndAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, base := serve(t, mute(intercept.Inspect, intercept.List), server.WithPage(server.PageFull))
		var waiting sync.WaitGroup
		for range 4 {
			waiting.Go(func() { ask(t, "GET", base+"/v1/overview", "") })
		}
		synctest.Wait()
		for _, rt := range overviews(s) {
			refused(t, try(t, base, rt), server.TooMany)
		}
		waiting.Wait()
		noErr(t, s.Close())
		for _, path := range []string{"/v1/overview?prefix=k", "/v1/overview/lock?name=k"} {
			refused(t, ask(t, "GET", base+path, ""), server.Draining)
		}
	})
}

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
