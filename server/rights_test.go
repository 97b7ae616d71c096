package server_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

func TestRights_H6_WithoutATokenNothingIsToldButHealth(t *testing.T) {
	file, _ := openAuth(t, roles())
	s, base := serve(t, memdriver.New(), server.WithPage(server.PageFull), server.WithAuthenticator(file))
	askAs(t, "admin", "POST", base+"/v1/locks/orders%2F1", `{"leaseId":"a","owner":"shopkeeper"}`)
	for _, rt := range s.Routes() {
		path := strings.NewReplacer("{name}", "orders%2F1", "{id}", "a", "{resourceId}", "orders%2F1").Replace(rt.Path)
		for _, who := range []string{"", "stranger"} {
			got := askAs(t, who, rt.Method, base+path, `{}`)
			if want := rt.Verb != auth.Anyone; (got.status == 401) != want || want && !strings.Contains(got.body, "#unauthenticated") {
				t.Errorf("%s as %q: %d %s", rt.Operation, who, got.status, got.body)
			}
			if strings.Contains(got.body, "shopkeeper") || strings.Contains(got.body, `"holders":`) && rt.Operation != "openapi" {
				t.Errorf("%s as %q reveals %s", rt.Operation, who, got.body)
			}
		}
	}
	// Unknown paths are refused as well, so that they do not reveal which paths exist.
	answered(t, 401, ask(t, "GET", base+"/v1/nothing", ""))
}

func TestRights_H6_WithoutTheRightNothingIsToldOfTheHolder(t *testing.T) {
	file, _ := openAuth(t, roles())
	talkative := after(memdriver.New(), func(*message) error { return nil })
	talkative.Change = func(_ *message, reply *driver.Reply) {
		reply.Holders = []driver.Holder{{ID: "a", Owner: "shopkeeper", Labels: map[string]string{"card": "visa-4711"}}}
	}
	s, base := serve(t, talkative, server.WithAuthenticator(file))
	for _, name := range []string{"orders%2F1", "private%2F1"} {
		answered(t, 201, askAs(t, "admin", "POST", base+"/v1/locks/"+name, `{"leaseId":"a","owner":"shopkeeper","labels":{"card":"visa-4711"}}`))
	}
	told := func(text string) bool {
		return strings.Contains(text, "shopkeeper") || strings.Contains(text, "visa-4711") || strings.Contains(text, `"holders"`)
	}
	// A name without any right is refused whether it is in use or not.
	for _, rt := range s.Routes() {
		if rt.Verb == auth.Anyone || !strings.Contains(rt.Path, "{") {
			continue
		}
		var answers []string
		for _, name := range []string{"private%2F1", "private%2F2"} {
			path := strings.NewReplacer("{name}", name, "{id}", "a", "{resourceId}", name).Replace(rt.Path)
			text := answered(t, 403, askAs(t, "shop", rt.Method, base+path, `{"leaseId":"a","reason":"x"}`))
			if told(text) {
				t.Errorf("%s: %s", rt.Operation, text)
			}
			answers = append(answers, text)
		}
		if answers[0] != answers[1] {
			t.Errorf("%s reveals whether the name is in use: %q", rt.Operation, answers)
		}
	}
	// A client that may acquire but not read learns that the lock is held, without the holder.
	lock := base + "/v1/locks/orders%2F1"
	for _, step := range []struct {
		method, url, body string
		status            int
		header            []string
	}{
		{"POST", lock, `{"leaseId":"b"}`, 409, nil},
		{"POST", lock, `{"leaseId":"c","ticketMs":30000}`, 202, nil},
		{"POST", lock, `{"leaseId":"c","waitMs":1}`, 202, nil},
		{"PUT", lock + "/leases/c", `{"ticketMs":30000}`, 202, nil},
		{"POST", base + "/v1/leases:renew", `{"leases":[{"key":"orders/1","leaseId":"c","ticketMs":30000}]}`, 200, nil},
		{"POST", base + "/v1/locks/orders%2F2", `{"leaseId":"d"}`, 201, nil},
		{"PUT", base + "/v1/locks/orders%2F2/leases/d", `{}`, 200, nil},
		{"DELETE", lock + "/leases/c", "", 200, []string{"Prefer", "return=representation"}},
		{"GET", lock, "", 403, nil},
		{"GET", base + "/v1/locks?prefix=orders/", "", 403, nil},
		{"GET", base + "/v1/events?name=orders%2F1", "", 403, nil},
		{"POST", lock + ":break", `{"leaseId":"a","reason":"x"}`, 403, nil},
	} {
		got := askAs(t, "shop", step.method, step.url, step.body, step.header...)
		if answered(t, step.status, got); told(got.body) {
			t.Errorf("%s: %s", got, got.body)
		}
	}
	// A batch may name a lease to which the caller has no right: only that lease is refused.
	text := askAs(t, "shop", "POST", base+"/v1/leases:renew", `{"leases":[{"key":"private/1","leaseId":"a"}]}`).body
	if !strings.Contains(text, "#forbidden") || told(text) {
		t.Errorf("a batch with a lease of another principal: %s", text)
	}
	// A client that may read receives the holder.
	if text := answered(t, 200, askAs(t, "desk", "GET", lock, "")); !told(text) {
		t.Errorf("inspect by the desk: %s", text)
	}
	answered(t, 403, askAs(t, "desk", "GET", base+"/v1/locks?prefix=order", ""))
	answered(t, 403, askAs(t, "desk", "GET", base+"/v1/locks", ""))
	// Metrics need no right, since they contain no names.
	if text := answered(t, 200, askAs(t, "shop", "GET", base+"/metrics", "")); strings.Contains(text, "shopkeeper") || strings.Contains(text, "orders") {
		t.Errorf("metrics: %s", text)
	}
}

// A store announces a break to every stream.
func TestRights_ABreakIsToldToThoseWhoMayAcquireOrRead(t *testing.T) {
	offices(t, "", func(t *office) {
		streams := make(map[string]*hearing)
		for _, who := range []string{"shop", "desk", "admin"} {
			streams[who] = t.open(who, "/v1/events")
		}
		for _, name := range []string{"private/1", "desk/1", "orders/1"} {
			t.take(name)
			t.breakUp(name)
		}
		for who, want := range map[string]string{
			"admin": "[private/1 desk/1 orders/1]",
			"desk":  "[desk/1 orders/1]", // may read both
			"shop":  "[orders/1]",        // may acquire it
		} {
			text, _ := streams[who].now()
			var told []string
			for _, m := range regexp.MustCompile(`event: (\w+)\nid: .*\ndata: (.*)`).FindAllStringSubmatch(text, -1) {
				var hint wire.Hint
				err := json.Unmarshal([]byte(m[2]), &hint)
				if m[1] == wire.EventBroken && err == nil && hint.LeaseID == "a" && hint.Reason == "why" {
					told = append(told, hint.Key)
				} else if m[1] != wire.EventReady {
					t.Errorf("%s receives %s", who, m[0])
				}
			}
			if fmt.Sprint(told) != want {
				t.Errorf("%s receives the breaks of %v, want %s", who, told, want)
			}
		}
	})
}

// An address is where the store sends messages: with Redis, a channel.
func TestAddress_OnlyThoseOfEventStreamsAreTaken(t *testing.T) {
	towns(t, func(t *town) {
		t.take("holder")
		var own struct{ Address string }
		for i := range 2 { // a service with an address of its own accepts addresses of the other service
			own.Address = ""
			tuned := tune(t, t.url(i, "/v1/events"))
			for own.Address == "" {
				tuned.hear("ready", &own)
			}
		}
		lock := t.url(0, "/v1/locks/k")
		for _, address := range []string{"chat", "__keyspace@0__:k", own.Address + "x", "x" + own.Address, strings.ToLower(own.Address) + " "} {
			refused(t, ask(t, "POST", lock, `{"leaseId":"a","ticketMs":1000,"notify":"`+address+`"}`), server.Invalid)
			refused(t, ask(t, "PUT", lock+"/leases/holder", `{"notify":"`+address+`"}`), server.Invalid)
		}
		must(t, 202, "POST", lock, `{"leaseId":"a","ticketMs":1000,"notify":"`+own.Address+`"}`)
	})
}
