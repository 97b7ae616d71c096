package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// byKey returns requests about a lock and its lease a, without either of them in the path.
func byKey(name string) map[string]struct{ method, path, body string } {
	key, err := json.Marshal(name)
	if err != nil {
		panic(err)
	}
	body := func(more string) string { return fmt.Sprintf(`{"key":%s%s}`, key, more) }
	return map[string]struct{ method, path, body string }{
		"acquire": {"POST", "/v1/locks", body(`,"leaseId":"a"`)},
		"renew":   {"PUT", "/v1/leases", body(`,"leaseId":"a","ttlMs":60000`)},
		"inspect": {"GET", "/v1/locks:inspect?name=" + url.QueryEscape(name), ""},
		"glance":  {"GET", "/v1/locks:inspect?waiters=false&name=" + url.QueryEscape(name), ""},
		"release": {"POST", "/v1/leases:release", body(`,"leaseId":"a"`)},
		"show":    {"GET", "/v1/overview/lock?name=" + url.QueryEscape(name), ""},
		"break":   {"POST", "/v1/locks:break", body(`,"leaseId":"a","reason":"stuck"`)},
	}
}

// A proxy that cleans or decodes paths would change these names. Logs, metrics and limits count
// each request as the operation on its lock.
func TestByKey_NamesThatAPathMayLose(t *testing.T) {
	seen := make(chan string, 1)
	_, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithObserver(func(_ *http.Request, x *server.Exchange) {
		seen <- fmt.Sprint(x.Operation(), " ", x.Name, " ", x.LeaseID)
	}))
	for _, name := range []string{".", "..", "./x", "a/../b", "a//b", "/", "a/", "a%2Fb", "%", "x:break", `"q\`, "é", "a?b#c"} {
		requests := byKey(name)
		for _, step := range []struct {
			verb   string
			status int
			says   string
		}{
			{"acquire", 201, `"state":"held"`},
			{"acquire", 200, `"again":true`},
			{"renew", 200, `"ttlMs":60000`},
			{"inspect", 200, `"leaseId":"a"`},
			{"glance", 200, `"leaseId":"a"`},
			{"show", 200, `"held":1`},
			{"release", 200, `"state":"released"`},
			{"release", 200, `"again":true`},
			{"renew", 410, "#released"},
			{"break", 404, "#not-held"},
		} {
			r := requests[step.verb]
			text := answered(t, step.status, ask(t, r.method, base+r.path, r.body))
			var got struct{ Key string }
			if err := json.Unmarshal([]byte(text), &got); err != nil || !strings.Contains(text, step.says) {
				t.Errorf("%s of %q: %s; want %s", step.verb, name, text, step.says)
			}
			if got.Key != name && step.verb != "break" {
				t.Errorf("%s of %q is answered for %q", step.verb, name, got.Key)
			}
			want := step.verb + " " + name + " a"
			switch step.verb {
			case "inspect", "glance":
				want = "inspect " + name + " "
			case "show":
				want = "overviewLock " + name + " "
			}
			if got := <-seen; got != want {
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
