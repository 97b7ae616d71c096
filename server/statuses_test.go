package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/operations"
)

// aim returns the path of a route for a lock and a lease.
func aim(rt *server.Route, name, id string) string {
	if rt.Operation == "inspect" && rt.ByKey || rt.Operation == "overviewLock" {
		return rt.Path + "?name=" + name
	}
	return strings.NewReplacer("{name}", name, "{resourceId}", name, "{id}", id).Replace(rt.Path)
}

// bodyOf returns a valid body for the operation.
func bodyOf(rt *server.Route, name, id string) string {
	switch {
	case rt.ByKey && rt.Operation == "break":
		return fmt.Sprintf(`{"key":%q,"leaseId":%q,"reason":"a test"}`, name, id)
	case rt.ByKey && rt.Method != http.MethodGet:
		return fmt.Sprintf(`{"key":%q,"leaseId":%q}`, name, id)
	}
	switch rt.Operation {
	case "break":
		return fmt.Sprintf(`{"leaseId":%q,"reason":"a test"}`, id)
	case "renewBatch":
		return fmt.Sprintf(`{"leases":[{"key":%q,"leaseId":%q}]}`, name, id)
	case "acquire":
		return fmt.Sprintf(`{"leaseId":%q}`, id)
	}
	return ""
}

// try sends a valid request of the route, for the lock k and the lease a.
func try(t *testing.T, base string, rt *server.Route, header ...string) exchange {
	t.Helper()
	return ask(t, rt.Method, base+aim(rt, "k", "a"), bodyOf(rt, "k", "a"), header...)
}

// having returns the routes that document a cause.
func having(s *server.Server, cause *server.Cause) []*server.Route {
	var all []*server.Route
	for _, rt := range s.Routes() {
		if slices.Contains(rt.AllCauses(), cause) {
			all = append(all, &rt)
		}
	}
	return all
}

func TestStatus_H5_WhatIsOutOfBoundsIsRefused(t *testing.T) {
	s, base := serve(t, memdriver.New(), server.WithOperation(operations.Simulate(time.Millisecond)), server.WithPage(server.PageFull))
	long := strings.Repeat("x", 513)
	for _, rt := range having(s, server.Invalid) {
		path, body := aim(rt, long, "a"), bodyOf(rt, "k", "a")
		if rt.ByKey {
			body = bodyOf(rt, long, "a")
		}
		if rt.Operation == "renewBatch" {
			body = `{"lease":[]}`
		}
		switch rt.Operation {
		case "list", "overview":
			path += "?prefix=" + long
		case "events":
			path += "?name=" + long
		}
		got := ask(t, rt.Method, base+path, body)
		if refused(t, got, server.Invalid); len(got.body) > 1000 {
			t.Errorf("%s: the answer repeats %d bytes", rt.Operation, len(got.body))
		}
	}
	refused(t, ask(t, "GET", base+"/v1/overview?cursor="+strings.Repeat(long, 8), ""), server.Invalid)
	for _, rt := range having(s, server.TooLarge) {
		refused(t, ask(t, rt.Method, base+aim(rt, "k", "a"), strings.Repeat(" ", 65<<10)+bodyOf(rt, "k", "a")), server.TooLarge)
	}
}

// TestStatus_H5_BodiesThatAreNotUnderstoodAreRefused: a refused body has no effect on the next.
func TestStatus_H5_BodiesThatAreNotUnderstoodAreRefused(t *testing.T) {
	_, base := serve(t, memdriver.New())
	lenient := listenInMemory(t, memdriver.New()) // whose answers are not compared with the document
	fine := []string{`null`, " {\"leaseId\":\"a\"} \r\n", ``, "\n", `{}`}
	for i, body := range []string{
		`{`, `[]`, `"x"`, `1`, `{"leaseId":1}`, `{"leaseId":"a"}{}`, `{"leaseId":"a"} x`, `{"colour":"red"}`,
		"{\"owner\":\"\xff\"}", `{"owner":"a\nb"}`, `{"owner":"` + strings.Repeat("x", 257) + `"}`,
		`{"leaseId":"../a"}`, `{"leaseId":""," leaseId":"a"}`, `{"leaseId":"` + strings.Repeat("x", 65) + `"}`,
		`{"ttlMs":0}`, `{"ttlMs":9}`, `{"ttlMs":86400001}`, `{"ttlMs":9223372036854775807}`, `{"ttlMs":9223372036854775808}`, `{"ttlMs":1.5}`, `{"ttlMs":"1s"}`, `{"ttlMs":-1}`,
		`{"waitMs":-1}`, `{"waitMs":60001}`, `{"ticketMs":-1}`, `{"ticketMs":60001}`,
		`{"mode":"write"}`, `{"policy":"lifo"}`, `{"limit":-1}`, `{"limit":2147483648}`, `{"limit":2}`, `{"mode":"shared","permits":-1}`,
		`{"minToken":-1}`, `{"minToken":9007199254740992}`, `{"reentrant":true}`,
		`{"labels":{"a":"` + strings.Repeat("x", 9<<10) + `"}}`, `{"labels":{"a":1}}`, `{"labels":{"a":"\u001b[2J"}}`, `{"labels":{"\u009b":""}}`, `{"since":"yesterday"}`,
	} {
		refused(t, ask(t, "POST", base+"/v1/locks/k", body), server.Invalid)
		must(t, 201, "POST", fmt.Sprint(lenient, "/v1/locks/", i), fine[i%len(fine)])
	}
	for _, id := range []string{"%20", "-a", ".", "a%2Fb", strings.Repeat("x", 65), "%C3%A9"} {
		refused(t, ask(t, "PUT", base+"/v1/locks/k/leases/"+id, "{}"), server.Invalid)
	}
	for _, query := range []string{"keepMs=-1", "keepMs=x", "keepMs=86400001", "forbidMs=1.5", "forbidMs=+1", "forbidMs=0x10"} {
		refused(t, ask(t, "DELETE", base+"/v1/locks/k/leases/a?"+query, ""), server.Invalid)
	}
}

func TestStatus_H4_WhatTheStoreSaysIsToldApart(t *testing.T) {
	for _, row := range []struct {
		err   error
		cause *server.Cause
	}{
		{fmt.Errorf("%w: secret-host refused", driver.ErrUnavailable), server.Unavailable},
		{errors.New("read tcp secret-host: connection reset"), server.Unknown},
		{fmt.Errorf("secret-host: %w", errors.ErrUnsupported), server.Unsupported},
		{fmt.Errorf("%w: another limit", driver.ErrMismatch), server.Mismatch},
		{driver.ErrClosed, server.Draining},
	} {
		bubble(t, row.cause.Name, func(t *testing.T) {
			s, base := serve(t, newBroken(row.err), server.WithStoreTimeout(500*time.Millisecond), server.WithPage(server.PageFull))
			var wg sync.WaitGroup
			for _, rt := range having(s, row.cause) {
				if rt.Operation == "renewBatch" || row.cause == server.Draining && (rt.Operation == "redlock" || rt.Operation == "readyz") {
					continue // have answers of their own
				}
				wg.Go(func() {
					got := try(t, base, rt)
					refused(t, got, row.cause)
					if strings.Contains(got.body, "secret-host") && row.cause != server.Unsupported {
						t.Errorf("%s reveals the store: %s", rt.Operation, got.body)
					}
				})
			}
			wg.Wait()
			text := must(t, 200, "POST", base+"/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a"}]}`)
			if !strings.Contains(text, row.cause.Type()+`"`) {
				t.Errorf("a batch: %s", text)
			}
		})
	}
}

// fragile is an authenticator that panics.
type fragile struct{}

func (fragile) Authenticate(*http.Request) (auth.Principal, error) { panic("defect") }

func TestStatus_ADefectIsAnsweredAndEndsNothing(t *testing.T) {
	s, base := serve(t, newBroken(nil))
	for _, rt := range having(s, server.Internal) {
		refused(t, try(t, base, rt), server.Internal)
	}
	answered(t, 200, ask(t, "GET", base+"/livez", ""))
	s, base = serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithAuthenticator(fragile{}))
	for _, rt := range overviews(s) {
		refused(t, try(t, base, rt), server.Internal)
	}
}

func TestStatus_AStoreThatCannotBeLookedIntoIsToldSo(t *testing.T) {
	s, base := serve(t, struct{ driver.Driver }{memdriver.New()}, server.WithPage(server.PageFull))
	for _, rt := range having(s, server.Unsupported) {
		if slices.Contains([]string{"inspect", "list", "break", "overview", "overviewLock"}, rt.Operation) {
			refused(t, try(t, base, rt), server.Unsupported)
		}
	}
}

func TestStatus_H2_H4_OfOneLeaseFromItsBeginningToItsEnd(t *testing.T) {
	store := memdriver.New()
	_, base := serve(t, store)
	lock := base + "/v1/locks/k"
	for _, step := range []struct {
		what, method, url, body string
		status                  int
		says                    string
	}{
		{"first grant", "POST", lock, `{"leaseId":"a"}`, 201, `"state":"held"`},
		{"repeated", "POST", lock, `{"leaseId":"a"}`, 200, `"again":true`},
		{"held", "POST", lock, `{"leaseId":"b"}`, 409, "#held"},
		{"queued", "POST", lock, `{"leaseId":"c","ticketMs":60000}`, 202, `"position":1`},
		{"place kept", "PUT", lock + "/leases/c", `{"ticketMs":60000}`, 202, `"position":1`},
		{"renewed", "PUT", lock + "/leases/a", `{"ttlMs":60000}`, 200, `"ttlMs":60000`},
		{"another limit", "POST", lock, `{"leaseId":"d","mode":"shared","limit":2,"ticketMs":1000}`, 202, ``},
		{"seen", "GET", lock, ``, 200, `"waiters":[{`},
		{"listed", "GET", base + "/v1/locks?prefix=k", ``, 200, `"keys":["k"]`},
		{"broken", "POST", lock + ":break", `{"leaseId":"a","reason":"stuck"}`, 200, `"state":"released"`},
		{"broken before", "POST", lock + ":break", `{"leaseId":"a","reason":"stuck"}`, 404, "#not-held"},
		{"renewed after a break", "PUT", lock + "/leases/a", `{}`, 410, "#broken"},
		{"released after a break", "DELETE", lock + "/leases/a", ``, 410, "#broken"},
		{"renewed, never there", "PUT", lock + "/leases/x", `{}`, 410, "#gone"},
		{"released, never there", "DELETE", lock + "/leases/x", ``, 410, "#gone"},
		{"granted in the queue", "PUT", lock + "/leases/c", `{}`, 200, `"state":"held"`},
		{"released", "DELETE", lock + "/leases/c", ``, 204, ``},
		{"released again", "DELETE", lock + "/leases/c", ``, 204, ``},
		{"renewed after the release", "PUT", lock + "/leases/c", `{}`, 410, "#released"},
		{"H3: a late repetition", "POST", lock, `{"leaseId":"c"}`, 410, "#released"},
		{"a semaphore", "POST", base + "/v1/locks/s", `{"leaseId":"a","mode":"shared","limit":2}`, 201, ``},
		{"with another limit", "POST", base + "/v1/locks/s", `{"leaseId":"b","mode":"shared","limit":3}`, 422, "#mismatch"},
		{"a method that is not there", "POST", lock + "/leases/c", ``, 405, "#method-not-allowed"},
		{"resized", "POST", base + "/v1/locks/s", `{"leaseId":"r","mode":"shared","limit":3,"resize":true}`, 200, `"state":"resized"`},
	} {
		if got := ask(t, step.method, step.url, step.body); got.status != step.status || !strings.Contains(got.body, step.says) {
			t.Errorf("%s: %d %s; want %d %s", step.what, got.status, got.body, step.status, step.says)
		}
	}
	// Another visit does not end the place of a visit.
	ask(t, "POST", base+"/v1/locks/m", `{"leaseId":"a"}`)
	ask(t, "POST", base+"/v1/locks/m", `{"leaseId":"b","ticketMs":60000,"visit":"one"}`)
	refused(t, ask(t, "DELETE", base+"/v1/locks/m/leases/b?visit=two", ""), server.Moved)
	// An id that was broken is not granted again.
	ask(t, "POST", base+"/v1/locks/m:break", `{"leaseId":"a","reason":"stuck"}`)
	refused(t, ask(t, "POST", base+"/v1/locks/m", `{"leaseId":"a"}`), server.Broken)
}

func TestStatus_EveryPatternTellsOfItsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		var fate func(*leasehold.Lease) error
		var mu sync.Mutex
		op := operations.Operation{Do: func(_ context.Context, l *leasehold.Lease) error {
			mu.Lock()
			defer mu.Unlock()
			return fate(l)
		}}
		_, base := serve(t, store, server.WithOperation(op), server.WithOperationWait(500*time.Millisecond), server.WithMaxOperations(1))
		let := func(f func(*leasehold.Lease) error) {
			mu.Lock()
			defer mu.Unlock()
			fate = f
		}
		for _, p := range patterns {
			url := base + "/api/locks/" + p + "/" + p
			let(func(l *leasehold.Lease) error {
				_, err := store.Break(context.Background(), l.Key(), l.ID(), "a test")
				return err
			})
			refused(t, ask(t, "POST", url, ""), server.Unprotected)
			let(func(*leasehold.Lease) error { return errors.New("secret") })
			got := ask(t, "POST", url, "")
			if refused(t, got, server.Failed); strings.Contains(got.body, "secret") {
				t.Errorf("%s reveals the operation's error: %s", p, got.body)
			}
			ask(t, "POST", base+"/v1/locks/"+p, `{"leaseId":"other","ttlMs":60000}`)
			got = ask(t, "POST", url, "")
			var after int
			if _, err := fmt.Sscanf(got.body, `{"error":"Resource locked","retryAfterMs":%d}`, &after); err != nil || after <= 0 || after > 60000 {
				t.Errorf("%s, held: %s, %v", p, got.body, err)
			}
			if got.status != 409 || !strings.HasSuffix(got.body, fmt.Sprintf("Ms\":%d}", after)) || got.header.Get("Retry-After") != strconv.Itoa((after+999)/1000) {
				t.Errorf("%s, held: %d %q, Retry-After %q", p, got.status, got.body, got.header.Get("Retry-After"))
			}
		}
		began, end := make(chan struct{}), make(chan struct{})
		let(func(*leasehold.Lease) error {
			close(began)
			<-end
			return nil
		})
		done := make(chan exchange)
		go func() { done <- ask(t, "POST", base+"/api/locks/simple/busy", "") }()
		<-began
		for _, p := range patterns {
			refused(t, ask(t, "POST", base+"/api/locks/"+p+"/free", ""), server.TooMany)
		}
		close(end)
		answered(t, 200, <-done)
	})
}

// askedAs sends a request with a Host by a connection with the local address.
func askedAs(t *testing.T, s *server.Server, local net.Addr, rt *server.Route, host string) exchange {
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, local)
	got := direct(ctx, s, host, rt.Method, aim(rt, "k", "a"), bodyOf(rt, "k", "a"))
	got.who = fmt.Sprintf("%q by %v", host, local)
	theContract().judge(&got)
	return got
}

var tcp = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}

// The other site may have sent the page that asks, or its name may have been rebound.
func TestStatus_AnotherSiteIsRefused(t *testing.T) {
	s, base := serve(t, memdriver.New(), server.WithPage(server.PageFull))
	for _, rt := range s.Routes() {
		got := askedAs(t, s, tcp, &rt, "evil.example:8080")
		if refused(t, got, server.Forbidden); !strings.Contains(got.body, "--allowed-host") {
			t.Errorf("%s: no advice in %s", rt.Operation, got.body)
		}
		if rt.Method != http.MethodGet {
			refused(t, try(t, base, &rt, "Sec-Fetch-Site", "cross-site"), server.Forbidden)
		}
	}
}

func TestHost_IsComparedWithoutAuthentication(t *testing.T) {
	file, _ := openAuth(t, roles())
	const allowed, denied = http.StatusOK, http.StatusForbidden
	for _, row := range []struct {
		host   string
		local  net.Addr
		opts   []server.Option
		status int
	}{
		{"localhost", tcp, nil, allowed},
		{"LOCALHOST.:8080", tcp, nil, allowed},
		{"127.0.0.1:8080", tcp, nil, allowed},
		{"127.8.8.8", tcp, nil, allowed},
		{"[::1]:8080", tcp, nil, allowed},
		{"[::1]", tcp, nil, allowed},
		{"10.1.2.3:8080", tcp, nil, allowed},
		{"[2001:db8::1]:8080", tcp, nil, allowed},
		{"", tcp, nil, allowed},
		{"evil.example", tcp, nil, denied},
		{"evil.example:8080", &net.UDPAddr{}, nil, denied},
		{"localhost.evil.example", tcp, nil, denied},
		{"127.0.0.1.evil.example", tcp, nil, denied},
		{"[localhost]x", tcp, nil, denied},
		{"2130706433", tcp, nil, denied},
		{".", tcp, nil, denied},
		{"evil.example", &net.UnixAddr{Net: "unix"}, nil, allowed},
		{"evil.example", tcp, []server.Option{server.WithAuthenticator(file)}, allowed},
		{"locks", tcp, []server.Option{server.WithAllowedHosts("other"), server.WithAllowedHosts("Locks.")}, allowed},
		{"LOCKS.:8080", tcp, []server.Option{server.WithAllowedHosts("locks:80")}, allowed},
		{"a.locks", tcp, []server.Option{server.WithAllowedHosts("locks")}, denied},
	} {
		s := open(t, memdriver.New(), row.opts...)
		answered(t, row.status, askedAs(t, s, row.local, &server.Route{Method: "GET", Path: "/livez"}, row.host))
		_ = s.Close()
	}
}

func TestOptions_OutOfBoundsAreRefused(t *testing.T) {
	var all []server.Option
	for _, name := range []string{"", ".", "http://locks", "locks/x", "*.locks", "a,b", "a b"} {
		all = append(all, server.WithAllowedHosts(name))
	}
	for _, n := range [][2]int{{0, 1}, {1, 0}, {1, 1_000_001}} {
		all = append(all, server.WithMaxWaiters(n[0], n[1]))
	}
	for i, option := range all {
		if _, err := server.New(memdriver.New(), option); err == nil {
			t.Errorf("option %d is taken", i)
		}
	}
}
