package server_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/server"
)

// entry is a line of an audit log.
type entry struct {
	Time                                                       time.Time
	Event, Key, Mode, Lease, Owner, Client, By, Reason, Detail string
	Token, HeldMs, WaitedMs                                    int64
}

// entries returns the lines of an audit log.
func (s *safe) entries(t *testing.T) (all []entry) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(s.String()), "\n") {
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

// say sends a request of the administrator, which has to be answered with a status.
type say func(method, path, body string, want int)

func saying(t *testing.T, base string) say {
	return func(method, path, body string, want int) {
		t.Helper()
		answered(t, want, askAs(t, "admin", method, base+path, body))
	}
}

func TestAudit_TellsWhoHeldWhatAndWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, _ := openAuth(t, roles())
		log := new(safe)
		store := memdriver.New()
		_, base := serve(t, store, server.WithAuditLog(log), server.WithAuthenticator(file))
		say := saying(t, base)
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
		time.Sleep(3 * time.Second) // until the last lease has expired
		want := []entry{
			{Event: "granted", Lease: "a", Owner: "worker-7"},
			{Event: "ended", Lease: "a", Owner: "worker-7", Reason: "released"},
			{Event: "granted", Lease: "b", Owner: "worker-8"},
			{Event: "ended", Lease: "b", Owner: "worker-8", Reason: "broken", By: "admin", Detail: "stuck"},
			{Event: "granted", Lease: "c", Owner: "worker-9"},
			{Event: "ended", Lease: "c", Owner: "worker-9", Reason: "expired", Detail: "not renewed through this service"},
		}
		all := log.entries(t)
		if len(all) != len(want) {
			t.Fatalf("%d lines, want %d: %s", len(all), len(want), log)
		}
		for i, got := range all {
			w := want[i]
			w.Key, w.Mode, w.Client = "orders/1", "exclusive", "admin"
			w.Time, w.Token, w.HeldMs, w.WaitedMs = got.Time, got.Token, got.HeldMs, got.WaitedMs
			if got != w || got.Token == 0 || got.Time.IsZero() || got.Event == "ended" && got.HeldMs == 0 {
				t.Errorf("line %d: %+v, want %+v", i, got, w)
			}
		}
	})
}

func TestAudit_OfALeaseThatAnotherReplicaGrantedTheEndIsTold(t *testing.T) {
	store := memdriver.New()
	first, second := new(safe), new(safe)
	_, one := serve(t, store, server.WithAuditLog(first))
	_, two := serve(t, struct{ *memdriver.Driver }{store}, server.WithAuditLog(second))
	must(t, 201, "POST", one+"/v1/locks/k", `{"leaseId":"a","owner":"w","ttlMs":60000}`)
	must(t, 200, "PUT", two+"/v1/locks/k/leases/a", `{"ttlMs":60000}`)
	must(t, 204, "DELETE", two+"/v1/locks/k/leases/a", "")
	if a, b := first.entries(t), second.entries(t); len(a) != 1 || a[0].Event != "granted" || len(b) != 1 || b[0].Event != "ended" || b[0].Lease != "a" || b[0].Reason != "released" {
		t.Errorf("%+v, and %+v", a, b)
	}
}

// late returns a store whose first answer to verb arrives when answer is closed.
// It sends to done when it has done that.
func late(verb intercept.Verb) (store *intercept.Driver, done, answer chan struct{}) {
	done, answer = make(chan struct{}, 1), make(chan struct{})
	var held atomic.Bool
	return after(memdriver.New(), func(m *message) error {
		if m.Verb == verb && held.CompareAndSwap(false, true) {
			done <- struct{}{}
			<-answer
		}
		return nil
	}), done, answer
}

// The store answers several requests about one lease, and the service notes the answers in
// another order.
func TestAudit_TheEndOfALeaseIsToldOnceInWhateverOrderAnswersArrive(t *testing.T) {
	const lock, lease = "/v1/locks/k", "/v1/locks/k/leases/a"
	expired := func(*testing.T, *safe, say) { time.Sleep(8 * time.Second) }
	sends := func(method, path, body string, want int) func(*testing.T, *safe, say) {
		return func(_ *testing.T, _ *safe, say say) { say(method, path, body, want) }
	}
	for name, c := range map[string]struct {
		verb         intercept.Verb // whose answer is late
		elsewhere    bool           // the lease is broken by another replica before
		ttl, renewal string
		during       func(t *testing.T, log *safe, say say)
		after        func(t *testing.T, log *safe, say say)
		reason       string
		detail, by   string
	}{
		"a renewal learns of a break": {
			verb: "break", during: sends("PUT", lease, `{"ttlMs":60000}`, 410), reason: "broken", detail: "stuck", by: "admin",
		},
		"a release learns of a break": {
			verb: "break", during: sends("DELETE", lease, "", 410), reason: "broken", detail: "stuck", by: "admin",
		},
		"a renewal learns of a break elsewhere, and another is under way": {
			verb: "break", elsewhere: true, during: sends("PUT", lease, `{"ttlMs":60000}`, 410), reason: "broken", detail: "stuck",
		},
		"a renewal learns of a release": {
			verb: "release", during: sends("PUT", lease, `{"ttlMs":60000}`, 410), reason: "released",
		},
		"a batch learns of a release": {
			verb: "release", during: sends("POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a","ttlMs":60000}]}`, 200), reason: "released",
		},
		"its time is up while it is released": {
			verb: "release", ttl: "6000", during: expired, reason: "released",
		},
		"its time is up while it is renewed": {
			verb: "renew", ttl: "6000", renewal: "60000", during: expired, after: sends("DELETE", lease, "", 204), reason: "released",
		},
		"a renewal is answered after the end": {
			verb: "renew", renewal: "6000", during: sends("DELETE", lease, "", 204), after: expired, reason: "released",
		},
		"the next holder is granted the lock before the release is answered": {
			verb: "release", during: sends("POST", lock, `{"leaseId":"b","ttlMs":60000}`, 201), reason: "released",
		},
		"the next holder is granted the lock before the break is answered": {
			verb: "break", during: sends("POST", lock, `{"leaseId":"b","ttlMs":60000}`, 201),
			reason: "broken", detail: "stuck", by: "admin",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			file, _ := openAuth(t, roles())
			log := new(safe)
			store, done, answer := late(c.verb)
			_, base := serve(t, store, server.WithAuditLog(log), server.WithAuthenticator(file))
			say := saying(t, base)
			say("POST", lock, `{"leaseId":"a","owner":"w","ttlMs":`+cmp.Or(c.ttl, "60000")+`}`, 201)
			broken := 200
			if c.elsewhere {
				broken = 404
				_, err := store.Store().(*memdriver.Driver).Break(t.Context(), "k", "a", "stuck")
				noErr(t, err)
			}
			var held sync.WaitGroup
			held.Go(func() {
				switch c.verb {
				case "break":
					say("POST", lock+":break", `{"leaseId":"a","reason":"stuck"}`, broken)
				case "release":
					say("DELETE", lease, "", 204)
				case "renew":
					say("PUT", lease, `{"ttlMs":`+c.renewal+`}`, 200)
				}
			})
			soon(t, "the store has done it", done)
			c.during(t, log, say)
			time.Sleep(time.Second)
			close(answer)
			held.Wait()
			if c.after != nil {
				c.after(t, log, say)
			}
			all := slices.DeleteFunc(log.entries(t), func(e entry) bool { return e.Lease != "a" })
			if len(all) != 2 || all[0].Event != "granted" {
				t.Fatalf("%+v, want a grant and an end", all)
			}
			if e := all[1]; e.Event != "ended" || e.Owner != "w" || e.Reason != c.reason || e.Detail != c.detail || e.By != c.by || e.HeldMs == 0 {
				t.Errorf("%+v", e)
			}
			for _, e := range log.entries(t) {
				if e.Lease == "b" && e.Time.Before(all[1].Time) {
					t.Errorf("a ends at %v, b is granted at %v", all[1].Time, e.Time)
				}
			}
		})
	}
}

func TestAudit_ALeaseThatExpiresWhileTheServiceDrainsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(safe)
		s, base := serve(t, memdriver.New(), server.WithAuditLog(log))
		must(t, 201, "POST", base+"/v1/locks/k", `{"leaseId":"a","ttlMs":1000}`)
		s.Drain()
		time.Sleep(3 * time.Second)
		if all := log.entries(t); len(all) != 2 || all[1].Event != "ended" || all[1].Reason != "expired" {
			t.Errorf("%+v", all)
		}
	})
}

func TestAudit_NothingIsKeptOfALeaseThatRequestsOnlyAskAbout(t *testing.T) {
	s, base := serve(t, memdriver.New(), server.WithAuditLog(new(safe)))
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"PUT", "/v1/locks/k/leases/a", `{"ttlMs":60000}`, 410},
		{"POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"a","ttlMs":60000},{"key":"k","leaseId":"a","ttlMs":60000}]}`, 200},
		{"DELETE", "/v1/locks/k/leases/a", "", 410},
		{"POST", "/v1/locks/k:break", `{"leaseId":"a","reason":"stuck"}`, 404},
		{"POST", "/v1/locks/k", `{"leaseId":"b","ttlMs":60000}`, 201},
		{"POST", "/v1/locks/k", `{"leaseId":"c","ttlMs":60000,"ticketMs":60000}`, 202},
		{"PUT", "/v1/locks/k/leases/c", `{"ttlMs":60000,"ticketMs":60000}`, 202},
		{"DELETE", "/v1/locks/k/leases/c", "", 204},
		{"DELETE", "/v1/locks/k/leases/b", "", 204},
	} {
		saying(t, base)(c.method, c.path, c.body, c.want)
	}
	eventually(t, func() bool { known, followed := s.Trail(); return known == 0 && followed == 0 })
}
