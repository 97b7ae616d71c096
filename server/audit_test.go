package server_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// sheet is what an audit log is written to.
type sheet struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *sheet) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// entry is a line of an audit log.
type entry struct {
	Time                                                       time.Time
	Event, Key, Mode, Lease, Owner, Client, By, Reason, Detail string
	Token, HeldMs, WaitedMs                                    int64
}

func (s *sheet) entries(t *testing.T) (all []entry) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimSpace(s.text.String()), "\n") {
		var e entry
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

func TestAudit_TellsWhoHeldWhatAndWhyItEnded(t *testing.T) {
	file, _ := openAuth(t, roles())
	log := new(sheet)
	store := memdriver.New()
	_, base := serve(t, store, server.WithAuditLog(log), server.WithAuthenticator(file))
	say := func(method, path, body string, want int) {
		t.Helper()
		if code, text := spokenAs(t, "admin", method, base+path, body); code != want {
			t.Fatalf("%s %s: %d %s, want %d", method, path, code, text, want)
		}
	}
	const lock = "/v1/locks/orders%2F1"
	say("POST", lock, `{"leaseId":"a","owner":"worker-7","ttlMs":60000}`, 201)
	say("POST", lock, `{"leaseId":"a","owner":"worker-7","ttlMs":60000}`, 200) // asked again: one grant
	say("POST", lock, `{"leaseId":"b","owner":"worker-8","ttlMs":60000,"ticketMs":60000}`, 202)
	say("PUT", lock+"/leases/a", `{"ttlMs":60000}`, 200)
	say("DELETE", lock+"/leases/a", ``, 204)
	say("DELETE", lock+"/leases/a", ``, 204)
	say("PUT", lock+"/leases/b", `{"ttlMs":60000,"ticketMs":60000}`, 200) // it is its turn
	say("POST", lock+":break", `{"leaseId":"b","reason":"stuck"}`, 200)
	say("PUT", lock+"/leases/b", `{"ttlMs":60000}`, 410)
	say("POST", lock, `{"leaseId":"c","owner":"worker-9","ttlMs":1000}`, 201)
	eventually(t, func() bool { return len(log.entries(t)) == 6 })
	want := []entry{
		{Event: "granted", Lease: "a", Owner: "worker-7"},
		{Event: "ended", Lease: "a", Owner: "worker-7", Reason: "released"},
		{Event: "granted", Lease: "b", Owner: "worker-8"},
		{Event: "ended", Lease: "b", Owner: "worker-8", Reason: "broken", By: "admin", Detail: "stuck"},
		{Event: "granted", Lease: "c", Owner: "worker-9"},
		{Event: "ended", Lease: "c", Owner: "worker-9", Reason: "expired", Detail: "not renewed through this service"},
	}
	for i, got := range log.entries(t) {
		w := want[i]
		w.Key, w.Mode, w.Client = "orders/1", "exclusive", "admin"
		w.Time, w.Token, w.HeldMs, w.WaitedMs = got.Time, got.Token, got.HeldMs, got.WaitedMs
		if got != w || got.Token == 0 || got.Time.IsZero() || got.Event == "ended" && got.HeldMs == 0 {
			t.Errorf("line %d: %+v, want %+v", i, got, w)
		}
	}
}

func TestAudit_OfALeaseThatAnotherReplicaGrantedTheEndIsTold(t *testing.T) {
	store := memdriver.New()
	first, second := new(sheet), new(sheet)
	_, one := serve(t, store, server.WithAuditLog(first))
	_, two := serve(t, struct{ *memdriver.Driver }{store}, server.WithAuditLog(second))
	if code, text := ask(t, "POST", one+"/v1/locks/k", `{"leaseId":"a","owner":"w","ttlMs":60000}`); code != 201 {
		t.Fatal(code, text)
	}
	if code, text := ask(t, "PUT", two+"/v1/locks/k/leases/a", `{"ttlMs":60000}`); code != 200 {
		t.Fatal(code, text)
	}
	if code, text := ask(t, "DELETE", two+"/v1/locks/k/leases/a", ""); code != 204 {
		t.Fatal(code, text)
	}
	if a, b := first.entries(t), second.entries(t); len(a) != 1 || a[0].Event != "granted" || len(b) != 1 || b[0].Event != "ended" || b[0].Lease != "a" || b[0].Reason != "released" {
		t.Errorf("%+v, and %+v", a, b)
	}
}
