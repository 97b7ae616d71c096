package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
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

// refused checks that an answer is a problem of the cause.
func refused(t *testing.T, what string, code int, text string, cause *server.Cause) {
	t.Helper()
	if code != cause.Status || !strings.Contains(text, cause.Type()+`"`) {
		t.Errorf("%s: %d %.300s, want %d %s", what, code, text, cause.Status, cause.Name)
	}
}

func TestStatus_H5_WhatIsOutOfBoundsIsRefused(t *testing.T) {
	s, base := serve(t, memdriver.New(), server.WithOperation(operations.Simulate(time.Millisecond)))
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
		case "list":
			path += "?prefix=" + long
		case "events":
			path += "?name=" + long
		}
		code, text := ask(t, rt.Method, base+path, body)
		refused(t, rt.Operation, code, text, server.Invalid)
		if len(text) > 1000 {
			t.Errorf("%s: the answer repeats %d bytes", rt.Operation, len(text))
		}
	}
	for _, rt := range having(s, server.TooLarge) {
		code, text := ask(t, rt.Method, base+aim(rt, "k", "a"), strings.Repeat(" ", 65<<10)+bodyOf(rt, "k", "a"))
		refused(t, rt.Operation, code, text, server.TooLarge)
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
		code, text := ask(t, "POST", base+"/v1/locks/k", body)
		refused(t, fmt.Sprintf("%.60q", body), code, text, server.Invalid)
		must(t, 201, "POST", fmt.Sprint(lenient, "/v1/locks/", i), fine[i%len(fine)])
	}
	for _, id := range []string{"%20", "-a", ".", "a%2Fb", strings.Repeat("x", 65), "%C3%A9"} {
		code, text := ask(t, "PUT", base+"/v1/locks/k/leases/"+id, "{}")
		refused(t, id, code, text, server.Invalid)
	}
	for _, query := range []string{"keepMs=-1", "keepMs=x", "keepMs=86400001", "forbidMs=1.5", "forbidMs=+1", "forbidMs=0x10"} {
		code, text := ask(t, "DELETE", base+"/v1/locks/k/leases/a?"+query, "")
		refused(t, query, code, text, server.Invalid)
	}
}

// broken is a store that answers every call with the same error, or panics.
type broken struct {
	err     error
	watches atomic.Int64
}

func (b *broken) fail() error {
	if b.err == nil {
		panic("defect")
	}
	return b.err
}

func (b *broken) Acquire(context.Context, driver.Request) (driver.Reply, error) {
	return driver.Reply{}, b.fail()
}

func (b *broken) Renew(_ context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	for i := range refs {
		each(i, driver.Reply{}, b.fail())
	}
}

func (b *broken) Release(context.Context, driver.Ref) (driver.Reply, error) {
	return driver.Reply{}, b.fail()
}

func (b *broken) Inspect(context.Context, string) (driver.Snapshot, error) {
	return driver.Snapshot{}, b.fail()
}

func (b *broken) List(context.Context, string, string) ([]string, string, error) {
	return nil, "", b.fail()
}

func (b *broken) Break(context.Context, string, string, string) (driver.Reply, error) {
	return driver.Reply{}, b.fail()
}

func (b *broken) Watch(func(driver.Hint)) (driver.Subscription, error) {
	if b.watches.Add(1) == 1 {
		return nil, errDefect // the first call is that of server.New
	}
	return nil, b.fail()
}

func (b *broken) Close() error { return nil }

var errDefect = errors.New("defect")

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
			s, base := serve(t, &broken{err: row.err}, server.WithStoreTimeout(500*time.Millisecond))
			var wg sync.WaitGroup
			for _, rt := range having(s, row.cause) {
				if rt.Operation == "renewBatch" || row.cause == server.Draining && (rt.Operation == "redlock" || rt.Operation == "readyz") {
					continue // have answers of their own
				}
				wg.Go(func() {
					code, text := ask(t, rt.Method, base+aim(rt, "k", "a"), bodyOf(rt, "k", "a"))
					refused(t, rt.Operation, code, text, row.cause)
					if strings.Contains(text, "secret-host") && row.cause != server.Unsupported {
						t.Errorf("%s reveals the store: %s", rt.Operation, text)
					}
				})
			}
			wg.Wait()
			code, text := ask(t, "POST", base+"/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a"}]}`)
			if code != 200 || !strings.Contains(text, row.cause.Type()+`"`) {
				t.Errorf("a batch: %d %s", code, text)
			}
		})
	}
}

func TestStatus_ADefectIsAnsweredAndEndsNothing(t *testing.T) {
	s, base := serve(t, &broken{})
	for _, rt := range having(s, server.Internal) {
		code, text := ask(t, rt.Method, base+aim(rt, "k", "a"), bodyOf(rt, "k", "a"))
		refused(t, rt.Operation, code, text, server.Internal)
	}
	if code, _ := ask(t, "GET", base+"/livez", ""); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}

func TestStatus_AnotherSitesPageIsRefused(t *testing.T) {
	s, base := serve(t, memdriver.New())
	for _, rt := range s.Routes() {
		if rt.Method == http.MethodGet {
			continue
		}
		code, text := spokenAs(t, "", rt.Method, base+aim(&rt, "k", "a"), bodyOf(&rt, "k", "a"), "Sec-Fetch-Site", "cross-site")
		refused(t, rt.Operation, code, text, server.Forbidden)
	}
}

func TestStatus_H4_OfOneLeaseFromItsBeginningToItsEnd(t *testing.T) {
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
		status, text := ask(t, step.method, step.url, step.body)
		if status != step.status || !strings.Contains(text, step.says) {
			t.Errorf("%s: %d %s; want %d %s", step.what, status, text, step.status, step.says)
		}
	}
	// Another visit does not end the place of a visit.
	ask(t, "POST", base+"/v1/locks/m", `{"leaseId":"a"}`)
	ask(t, "POST", base+"/v1/locks/m", `{"leaseId":"b","ticketMs":60000,"visit":"one"}`)
	code, text := ask(t, "DELETE", base+"/v1/locks/m/leases/b?visit=two", "")
	refused(t, "another visit", code, text, server.Moved)
	// An id that was broken is not granted again.
	ask(t, "POST", base+"/v1/locks/m:break", `{"leaseId":"a","reason":"stuck"}`)
	code, text = ask(t, "POST", base+"/v1/locks/m", `{"leaseId":"a"}`)
	refused(t, "a late repetition of what was broken", code, text, server.Broken)
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
			got := execute(t, url)
			refused(t, p+", lost", got.status, got.body, server.Unprotected)
			let(func(*leasehold.Lease) error { return errors.New("secret") })
			got = execute(t, url)
			if refused(t, p+", failed", got.status, got.body, server.Failed); strings.Contains(got.body, "secret") {
				t.Errorf("%s reveals the operation's error: %s", p, got.body)
			}
			ask(t, "POST", base+"/v1/locks/"+p, `{"leaseId":"other","ttlMs":60000}`)
			got = execute(t, url)
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
		go func() { done <- execute(t, base+"/api/locks/simple/busy") }()
		<-began
		for _, p := range patterns {
			got := execute(t, base+"/api/locks/"+p+"/free")
			refused(t, p+", too many", got.status, got.body, server.TooMany)
		}
		close(end)
		if got := <-done; got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}
