package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// Python writes 1000.0 after a division.
func TestServer_HR_E10_AWholeNumberIsOneHoweverItIsWritten(t *testing.T) {
	_, base := serve(t, memdriver.New())
	for i, number := range []string{"2000", "2000.0", "2e3", "2000.00"} {
		var l struct{ TTLMs int }
		body := fmt.Sprintf(`{"leaseId":"a","mode":"shared","limit":%[1]s,"permits":%[1]s,"ttlMs":%[1]s,"ticketMs":%[1]s,"minToken":%[1]s}`, number)
		answer(t, "POST", fmt.Sprintf("%s/v1/locks/k%d", base, i), body, 201, &l)
		if l.TTLMs != 2000 {
			t.Errorf("%s is read as %d", number, l.TTLMs)
		}
	}
}

func TestServer_HR_E10_WhatIsWrongIsToldInTheWordsOfTheInterface(t *testing.T) {
	_, base := serve(t, memdriver.New())
	for body, want := range map[string]string{
		`{"ttlMs":1000.5}`:    "ttlMs is not a whole number",
		`{"ttlMs":"1000"}`:    "ttlMs is not a whole number",
		`{"ttlMs":1e400}`:     "ttlMs is not a whole number",
		`{"minToken":1e17}`:   "minToken is not a whole number",
		`{"limit":[]}`:        "limit is not a whole number",
		`{"owner":7}`:         "owner is not a string",
		`{"reentrant":"yes"}`: "reentrant is not true or false",
		`{"labels":{"a":1}}`:  "is not a string",
		`{"labels":"a"}`:      "labels is not an object",
		`{"since":"today"}`:   "since is not a time",
		`{"since":7}`:         "since is not a time",
		`{"leaseID_":"a"}`:    `there is no field \"leaseID_\"`,
		`{"leaseId":"a"`:      "it ends too early",
		`{"leaseId":a}`:       "at byte",
		`[]`:                  "it is not an object",
	} {
		got := ask(t, "POST", base+"/v1/locks/k", body)
		text := got.body
		if refused(t, got, server.Invalid); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %q", body, text, want)
		}
		for _, word := range []string{"wire", "struct", "json:", "int64", "Go "} {
			if strings.Contains(text, word) {
				t.Errorf("%s: %s contains %q", body, text, word)
			}
		}
	}
}

// queueless is a store that keeps no queue.
type queueless struct{ *memdriver.Driver }

func (queueless) Supports(req driver.Request) error {
	if req.Ordered {
		return fmt.Errorf("no queue is kept: %w", errors.ErrUnsupported)
	}
	return nil
}

func TestAcquire_HR_E5_WhoInsistsOnTheOrderIsRefusedWhereThereIsNone(t *testing.T) {
	base := listen(t, queueless{memdriver.New()})
	d, err := httpdriver.Open(base)
	noErr(t, err)
	defer d.Close()
	req := driver.Request{Key: "k", ID: "a", TTL: time.Second, Ordered: true}
	if got, err := d.Acquire(t.Context(), req); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%+v, %v; want it refused", got, err)
	}
	req.Ordered = false
	if got, err := d.Acquire(t.Context(), req); err != nil || got.State != driver.Granted {
		t.Errorf("without: %+v, %v", got, err)
	}
}

func TestRenew_HR_C9_OneThatWasReleasedIsToldSo(t *testing.T) {
	base := listen(t, memdriver.New())
	lock := base + "/v1/locks/k"
	ask(t, "POST", lock, `{"leaseId":"a"}`)
	ask(t, "DELETE", lock+"/leases/a", "")
	refused(t, ask(t, "PUT", lock+"/leases/a", ""), server.Released)
	refused(t, ask(t, "PUT", lock+"/leases/never", ""), server.Gone)

	d, err := httpdriver.Open(base)
	noErr(t, err)
	defer d.Close()
	refs := []driver.Ref{{Key: "k", ID: "a", TTL: time.Second}, {Key: "k", ID: "never", TTL: time.Second}}
	d.Renew(context.Background(), refs, func(i int, got driver.Reply, err error) {
		if err != nil || got.State != driver.Gone || got.Replayed { // a batch does not find out whether a lease was released
			t.Errorf("%s: %+v, %v", refs[i].ID, got, err)
		}
	})
	answered(t, 201, ask(t, "POST", lock, `{"leaseId":"b"}`))
}

// stutter is a store that lists names twice, as a scan of Redis does.
type stutter struct{ *memdriver.Driver }

func (s stutter) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	keys, next, err := s.Driver.List(ctx, prefix, cursor)
	return append(keys, keys...), next, err
}

func TestList_HR_E3_ANameStandsOnceOnAPage(t *testing.T) {
	_, base := serve(t, stutter{memdriver.New()})
	for _, key := range []string{"a", "b"} {
		ask(t, "POST", base+"/v1/locks/"+key, "")
	}
	var page struct{ Keys []string }
	answer(t, "GET", base+"/v1/locks", "", 200, &page)
	if fmt.Sprint(page.Keys) != "[a b]" {
		t.Errorf("listed %v", page.Keys)
	}
}

// A path that was joined by hand has the slash of a name without an encoding.
func TestServer_ASlashInANameThatIsNotEncodedIsAnsweredWithAHint(t *testing.T) {
	_, base := serve(t, memdriver.New())
	deep := strings.Repeat("/x", 20)
	for path, meant := range map[string]string{
		"POST /v1/locks/orders/42":             "/v1/locks/orders%2F42",
		"GET /v1/locks/orders/42":              "/v1/locks/orders%2F42",
		"GET /v1/locks/a%20b/c:break":          "/v1/locks/a%20b%2Fc:break",
		"PUT /v1/locks/orders/42/leases/a":     "/v1/locks/orders%2F42/leases/a",
		"DELETE /v1/locks/a/leases/b/leases/c": "/v1/locks/a%2Fleases%2Fb/leases/c",
		"GET /v1/locks/x" + deep:               "/v1/locks/x" + strings.ReplaceAll(deep, "/", "%2F"),
		"POST /api/locks/simple/orders/42":     "/api/locks/simple/orders%2F42",
		"GET /v1/locks/a/":                     "",
		"GET /v1/nothing/a/b":                  "",
		"DELETE /v1/locks/a/leases/b/c":        "",
		"POST /prefix/v1/locks":                "",
	} {
		method, path, _ := strings.Cut(path, " ")
		var problem struct{ Type, Detail string }
		if answer(t, method, base+path, "", 404, &problem); problem.Type != server.NotFound.Type() {
			t.Errorf("%s: a problem of type %s", path, problem.Type)
		}
		_, hint, _ := strings.Cut(problem.Detail, "a slash in a name is sent as %2F, as in ")
		if hint != meant {
			t.Errorf("%s: the hint is %q, want %q", path, hint, meant)
		}
		if removes := strings.Contains(problem.Detail, `a proxy before the service has to remove "/prefix"`); removes != strings.HasPrefix(path, "/prefix") {
			t.Errorf("%s: %s", path, problem.Detail)
		}
	}
}

// arrived is a body that has arrived completely.
type arrived struct{ bytes.Reader }

func (*arrived) Close() error { return nil }

// TestServer_H5_ALargeBodyIsRefusedAlsoWhereItHasArrived gives the handler a body as
// a server does that has read it.
func TestServer_H5_ALargeBodyIsRefusedAlsoWhereItHasArrived(t *testing.T) {
	const most = 1 << 10
	s := open(t, memdriver.New(), server.WithMaxBody(most))
	for size, want := range map[int]int{most: http.StatusCreated, most + 1: http.StatusRequestEntityTooLarge} {
		r := httptest.NewRequest(http.MethodPost, "/v1/locks/k", nil)
		body := new(arrived)
		body.Reset([]byte(strings.Repeat(" ", size)))
		r.Body = body
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d bytes are answered %d, want %d: %s", size, w.Code, want, w.Body)
		}
		if r.Body != body {
			t.Errorf("the request of the caller was changed")
		}
	}
}

type request struct{ method, path, body string }

// byKey returns requests about a lock and its lease a, without either of them in the path.
func byKey(name string) map[string]request {
	key, err := json.Marshal(name)
	if err != nil {
		panic(err)
	}
	body := func(more string) string { return fmt.Sprintf(`{"key":%s%s}`, key, more) }
	return map[string]request{
		"acquire": {"POST", "/v1/locks", body(`,"leaseId":"a"`)},
		"renew":   {"PUT", "/v1/leases", body(`,"leaseId":"a","ttlMs":60000`)},
		"inspect": {"GET", "/v1/locks:inspect?name=" + url.QueryEscape(name), ""},
		"glance":  {"GET", "/v1/locks:inspect?waiters=false&name=" + url.QueryEscape(name), ""},
		"release": {"POST", "/v1/leases:release", body(`,"leaseId":"a"`)},
		"show":    {"GET", "/v1/overview/lock?name=" + url.QueryEscape(name), ""},
		"break":   {"POST", "/v1/locks:break", body(`,"leaseId":"a","reason":"stuck"`)},
	}
}

// Anything is a name. A proxy that cleans or decodes paths would change some of these, which the body
// may have instead. Logs, metrics and limits count each request as the operation on its lock.
func TestNames_AnythingIsANameInABodyAndInAPath(t *testing.T) {
	seen := make(chan string, 1)
	_, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithObserver(func(_ *http.Request, x *server.Exchange) {
		seen <- fmt.Sprint(x.Operation(), " ", x.Name, " ", x.LeaseID)
	}))
	for name, sent := range map[string]string{ // as it is sent in a path
		"orders/42": "orders%2F42", "a b": "a%20b", "a:b": "a:b", "x:break": "x%3Abreak", "leases/x": "leases%2Fx",
		"{name}": "%7Bname%7D", ".": "%2E", "..": "%2E%2E", "./x": ".%2Fx", "a/../b": "a%2F..%2Fb",
		"a//b": "a%2F%2Fb", "/": "%2F", "a/": "a%2F", "%": "%25", "%2F": "%252F", "a%2Fb": "a%252Fb",
		"é日本🔒": "%C3%A9%E6%97%A5%E6%9C%AC%F0%9F%94%92", "?#&=+": "%3F%23&=+", "a?b#c": "a%3Fb%23c", `"q\`: "%22q%5C",
		`quote" back\ <tag>`:      "quote%22%20back%5C%20%3Ctag%3E",
		" leading and trailing  ": "%20leading%20and%20trailing%20%20",
		strings.Repeat("日", 170):  strings.Repeat("%E6%97%A5", 170),
		strings.Repeat("a", 512):  strings.Repeat("a", 512),
	} {
		requests := byKey(name)
		requests["acquire by path"] = request{"POST", "/v1/locks/" + sent, `{"leaseId":"a"}`}
		requests["list"] = request{"GET", "/v1/locks?prefix=" + url.QueryEscape(name), ""}
		requests["release by path"] = request{"DELETE", "/v1/locks/" + sent + "/leases/a", ""}
		for _, step := range []struct {
			verb   string
			status int
			says   string
			seen   string // as an operation on the lease, unless it is given
		}{
			{"acquire", 201, `"state":"held"`, ""},
			{"acquire", 200, `"again":true`, ""},
			{"acquire by path", 200, `"again":true`, "acquire " + name + " a"},
			{"renew", 200, `"ttlMs":60000`, ""},
			{"inspect", 200, `"leaseId":"a"`, "inspect " + name + " "},
			{"glance", 200, `"leaseId":"a"`, "inspect " + name + " "},
			{"list", 200, `"keys":[`, "list  "},
			{"show", 200, `"held":1`, "overviewLock " + name + " "},
			{"release", 200, `"state":"released"`, ""},
			{"release", 200, `"again":true`, ""},
			{"release by path", 204, "", "release " + name + " a"},
			{"renew", 410, "#released", ""},
			{"break", 404, "#not-held", ""},
		} {
			r := requests[step.verb]
			text := answered(t, step.status, ask(t, r.method, base+r.path, r.body))
			var got struct {
				Key  string
				Keys []string
			}
			if err := json.Unmarshal([]byte(text), &got); text != "" && err != nil || !strings.Contains(text, step.says) {
				t.Errorf("%s of %q: %s; want %s", step.verb, name, text, step.says)
			}
			if key := strings.Join(append(got.Keys, got.Key), ""); key != name && text != "" && step.verb != "break" {
				t.Errorf("%s of %q is answered for %q", step.verb, name, key)
			}
			if got, want := <-seen, cmp.Or(step.seen, step.verb+" "+name+" a"); got != want {
				t.Errorf("%s of %q is observed as %q", step.verb, name, got)
			}
		}
	}
}

func TestByKey_RightsAreThoseOfTheName(t *testing.T) {
	file, _ := openAuth(t, roles())
	_, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithAuthenticator(file))
	for _, r := range byKey("private/1") {
		answered(t, 401, ask(t, r.method, base+r.path, r.body))
		refused(t, askAs(t, "shop", r.method, base+r.path, r.body), server.Forbidden)
	}
	for verb, want := range map[string]int{"acquire": 201, "inspect": 403, "glance": 403, "show": 403, "break": 403} {
		r := byKey("orders/1")[verb]
		answered(t, want, askAs(t, "shop", r.method, base+r.path, r.body))
	}
}

func TestByKey_WhatIsOutOfBoundsIsRefused(t *testing.T) {
	_, base := serve(t, memdriver.New(), server.WithPage(server.PageFull))
	for _, name := range []string{"", strings.Repeat("x", 513), "a\nb"} {
		for _, r := range byKey(name) {
			refused(t, ask(t, r.method, base+r.path, r.body), server.Invalid)
		}
	}
	for path, bodies := range map[string][]string{
		"POST /v1/locks":                   {`{"leaseId":"a"}`},
		"POST /v1/locks/k":                 {`{"key":"k"}`, `{"key":"other"}`},
		"PUT /v1/leases":                   {`{"key":"k"}`, `{"leaseId":"a"}`, `{"key":"k","leaseId":"-a"}`},
		"PUT /v1/locks/k/leases/a":         {`{"key":"k"}`, `{"leaseId":"a"}`},
		"POST /v1/leases:release":          {`{}`, `{"key":"k"}`, `{"key":"k","leaseId":"a","keepMs":-1}`, `{"key":"k","leaseId":"a","forbidMs":864000000}`, `{"key":"k","leaseId":"a","visit":"?"}`},
		"POST /v1/locks/k:break":           {`{"key":"k","leaseId":"a","reason":"x"}`},
		"GET /v1/locks/k?name=k":           {""},
		"POST /v1/leases:release?keepMs=1": {`{"key":"k","leaseId":"a","ttlMs":1}`},
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, body := range bodies {
			refused(t, ask(t, method, base+path, body), server.Invalid)
		}
	}
}
