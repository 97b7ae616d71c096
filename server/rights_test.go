package server_test

import (
	"context"
	"encoding/json"
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
	s, base := serve(t, memdriver.New(), server.WithAuthenticator(file))
	spokenAs(t, "admin", "POST", base+"/v1/locks/orders%2F1", `{"leaseId":"a","owner":"shopkeeper"}`)
	for _, rt := range s.Routes() {
		path := strings.NewReplacer("{name}", "orders%2F1", "{id}", "a", "{resourceId}", "orders%2F1").Replace(rt.Path)
		for _, who := range []string{"", "stranger"} {
			code, text := spokenAs(t, who, rt.Method, base+path, `{}`)
			if want := rt.Verb != auth.Anyone; (code == 401) != want || want && !strings.Contains(text, "#unauthenticated") {
				t.Errorf("%s as %q: %d %s", rt.Operation, who, code, text)
			}
			if strings.Contains(text, "shopkeeper") || strings.Contains(text, `"holders":`) && rt.Operation != "openapi" {
				t.Errorf("%s as %q reveals %s", rt.Operation, who, text)
			}
		}
	}
	// Unknown paths are refused as well, so that they do not reveal which paths exist.
	if code, _ := spokenAs(t, "", "GET", base+"/v1/nothing", ""); code != 401 {
		t.Errorf("an unknown path: %d", code)
	}
}

// talkative is a store that names the holder in every answer.
type talkative struct{ *memdriver.Driver }

func (s talkative) name(reply driver.Reply) driver.Reply {
	reply.Holders = []driver.Holder{{ID: "a", Owner: "shopkeeper", Labels: map[string]string{"card": "visa-4711"}}}
	return reply
}

func (s talkative) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	reply, err := s.Driver.Acquire(ctx, req)
	return s.name(reply), err
}

func (s talkative) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	s.Driver.Renew(ctx, refs, func(i int, reply driver.Reply, err error) { each(i, s.name(reply), err) })
}

func (s talkative) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	reply, err := s.Driver.Release(ctx, ref)
	return s.name(reply), err
}

func (s talkative) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	reply, err := s.Driver.Break(ctx, key, id, reason)
	return s.name(reply), err
}

func TestRights_H6_WithoutTheRightNothingIsToldOfTheHolder(t *testing.T) {
	file, _ := openAuth(t, roles())
	s, base := serve(t, talkative{memdriver.New()}, server.WithAuthenticator(file))
	for _, name := range []string{"orders%2F1", "private%2F1"} {
		if code, text := spokenAs(t, "admin", "POST", base+"/v1/locks/"+name, `{"leaseId":"a","owner":"shopkeeper","labels":{"card":"visa-4711"}}`); code != 201 {
			t.Fatal(code, text)
		}
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
			code, text := spokenAs(t, "shop", rt.Method, base+path, `{"leaseId":"a","reason":"x"}`)
			if code != 403 || told(text) {
				t.Errorf("%s: %d %s", rt.Operation, code, text)
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
		what, method, url, body string
		status                  int
		header                  []string
	}{
		{"try", "POST", lock, `{"leaseId":"b"}`, 409, nil},
		{"queue", "POST", lock, `{"leaseId":"c","ticketMs":30000}`, 202, nil},
		{"wait", "POST", lock, `{"leaseId":"c","waitMs":1}`, 202, nil},
		{"keep the place", "PUT", lock + "/leases/c", `{"ticketMs":30000}`, 202, nil},
		{"keep it in a batch", "POST", base + "/v1/leases:renew", `{"leases":[{"key":"orders/1","leaseId":"c","ticketMs":30000}]}`, 200, nil},
		{"take", "POST", base + "/v1/locks/orders%2F2", `{"leaseId":"d"}`, 201, nil},
		{"renew", "PUT", base + "/v1/locks/orders%2F2/leases/d", `{}`, 200, nil},
		{"leave", "DELETE", lock + "/leases/c", "", 200, []string{"Prefer", "return=representation"}},
		{"inspect", "GET", lock, "", 403, nil},
		{"list", "GET", base + "/v1/locks?prefix=orders/", "", 403, nil},
		{"watch", "GET", base + "/v1/events?name=orders%2F1", "", 403, nil},
		{"break", "POST", lock + ":break", `{"leaseId":"a","reason":"x"}`, 403, nil},
	} {
		code, text := spokenAs(t, "shop", step.method, step.url, step.body, step.header...)
		if code != step.status || told(text) {
			t.Errorf("%s: %d %s", step.what, code, text)
		}
	}
	// A batch may name a lease to which the caller has no right: only that lease is refused.
	if _, text := spokenAs(t, "shop", "POST", base+"/v1/leases:renew", `{"leases":[{"key":"private/1","leaseId":"a"}]}`); !strings.Contains(text, "#forbidden") || told(text) {
		t.Errorf("a batch with a lease of another principal: %s", text)
	}
	// A client that may read receives the holder.
	if code, text := spokenAs(t, "desk", "GET", lock, ""); code != 200 || !told(text) {
		t.Errorf("inspect by the desk: %d %s", code, text)
	}
	if code, _ := spokenAs(t, "desk", "GET", base+"/v1/locks?prefix=order", ""); code != 403 {
		t.Errorf("a listing beyond the prefix: %d", code)
	}
	if code, _ := spokenAs(t, "desk", "GET", base+"/v1/locks", ""); code != 403 {
		t.Errorf("a listing of everything: %d", code)
	}
	// Metrics need no right, since they contain no names.
	if code, text := spokenAs(t, "shop", "GET", base+"/metrics", ""); code != 200 || strings.Contains(text, "shopkeeper") || strings.Contains(text, "orders") {
		t.Errorf("metrics: %d %s", code, text)
	}
}

// A store announces a break to every stream.
func TestRights_ABreakIsToldToThoseWhoMayAcquireOrRead(t *testing.T) {
	file, _ := openAuth(t, roles())
	_, base := serve(t, memdriver.New(), server.WithAuthenticator(file))
	escape := strings.NewReplacer("/", "%2F").Replace
	take := func(name string) {
		t.Helper()
		if code, text := spokenAs(t, "admin", "POST", base+"/v1/locks/"+escape(name), `{"leaseId":"a"}`); code != 201 {
			t.Fatal(code, text)
		}
	}
	breakUp := func(name string) {
		t.Helper()
		if code, text := spokenAs(t, "admin", "POST", base+"/v1/locks/"+escape(name)+":break", `{"leaseId":"a","reason":"why"}`); code != 200 {
			t.Fatal(code, text)
		}
	}
	names := []string{"private/1", "desk/1", "orders/1"}
	streams := make(map[string]*radio)
	for _, who := range []string{"shop", "desk", "admin"} {
		streams[who] = tune(t, base+"/v1/events", "Authorization", "Bearer "+who)
		if _, name, data := streams[who].next(); name != wire.EventReady {
			t.Fatal(who, name, data)
		}
	}
	for _, name := range names {
		take(name)
		breakUp(name)
	}
	hears := func(who string, want ...string) {
		t.Helper()
		for _, key := range want {
			_, name, data := streams[who].next()
			var hint wire.Hint
			if err := json.Unmarshal([]byte(data), &hint); err != nil || name != wire.EventBroken || hint.Key != key || hint.LeaseID != "a" || hint.Reason != "why" {
				t.Fatalf("%s receives %s %s, want the break of %s", who, name, data, key)
			}
		}
	}
	hears("admin", names...)
	hears("desk", "desk/1", "orders/1") // may read both
	hears("shop", "orders/1")           // may acquire it
}

// An address is where the store sends messages: with Redis, a channel.
func TestAddress_OnlyThoseOfEventStreamsAreTaken(t *testing.T) {
	towns(t, func(t *town) {
		t.take("k", "holder")
		var own struct{ Address string }
		for i := range 2 { // a service with an address of its own accepts addresses of the other service
			own.Address = ""
			tuned := tune(t.T, t.url(i, "/v1/events"))
			for own.Address == "" {
				tuned.hear("ready", &own)
			}
		}
		lock := t.url(0, "/v1/locks/k")
		for _, address := range []string{"chat", "__keyspace@0__:k", own.Address + "x", "x" + own.Address, strings.ToLower(own.Address) + " "} {
			for what, status := range map[string]int{
				"POST": first(ask(t.T, "POST", lock, `{"leaseId":"a","ticketMs":1000,"notify":"`+address+`"}`)),
				"PUT":  first(ask(t.T, "PUT", lock+"/leases/holder", `{"notify":"`+address+`"}`)),
			} {
				if status != 400 {
					t.Errorf("%s with %q: %d", what, address, status)
				}
			}
		}
		if status, text := ask(t.T, "POST", lock, `{"leaseId":"a","ticketMs":1000,"notify":"`+own.Address+`"}`); status != 202 {
			t.Errorf("its own: %d %s", status, text)
		}
	})
}

func first(status int, _ string) int { return status }
