package server_test

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

// office is a service, in virtual time, whose rights the test changes.
type office struct {
	*testing.T
	file       *auth.File
	path, base string
}

// offices runs play as a subtest, with a service that has roles.
func offices(t *testing.T, name string, play func(t *office)) {
	t.Helper()
	file, path := openAuth(t, roles())
	bubble(t, name, func(t *testing.T) {
		_, base := serve(t, memdriver.New(), server.WithAuthenticator(file))
		play(&office{t, file, path, base})
	})
}

// become makes text the roles of the service.
func (t *office) become(text string) {
	t.Helper()
	noErr(t, os.WriteFile(t.path, []byte(text), 0o600))
	noErr(t, t.file.Reload())
}

// ask sends a request of a principal.
func (t *office) ask(who, method, path, body string, header ...string) exchange {
	t.Helper()
	return askAs(t, who, method, t.base+path, body, header...)
}

// admin sends a request as the administrator.
func (t *office) admin(want int, path, body string) {
	t.Helper()
	answered(t, want, t.ask("admin", "POST", path, body))
	synctest.Wait()
}

func (t *office) take(name string) {
	t.Helper()
	t.admin(201, "/v1/locks", fmt.Sprintf(`{"key":%q,"leaseId":"a","owner":"shopkeeper"}`, name))
}

func (t *office) breakUp(name string) {
	t.Helper()
	t.admin(200, "/v1/locks:break", fmt.Sprintf(`{"key":%q,"leaseId":"a","reason":"why"}`, name))
}

// hearing holds the text of a stream.
type hearing struct {
	safe
	stop  func()
	ended atomic.Bool
}

// open opens a stream, and waits for its beginning.
func (t *office) open(who, path string, header ...string) *hearing {
	t.Helper()
	r := tune(t, t.base+path, append(header, "Authorization", "Bearer "+who)...)
	h := &hearing{stop: r.cancel}
	go func() {
		_, err := io.Copy(h, r.body)
		h.ended.Store(err == nil)
	}()
	synctest.Wait()
	return h
}

// now returns the text so far, and whether the stream has ended.
func (h *hearing) now() (text string, ended bool) {
	synctest.Wait()
	return h.String(), h.ended.Load()
}

// without returns the roles without the token of the desk, or with its right to orders replaced
// by a right to carts.
func without(what string) string {
	if what == "token" {
		return strings.Replace(roles(), hashed("desk"), hashed("another"), 1)
	}
	return strings.Replace(roles(), `{"verbs": ["read"], "prefix": "orders/"}`, `{"verbs": ["read"], "prefix": "carts/"}`, 1)
}

// toAnother returns roles in which the shop has the desk's token, with rights to the same locks.
func toAnother() string {
	return fmt.Sprintf(`{"principals": [
		{"name": "shop", "tokens": [%q], "rights": [{"verbs": ["read"], "prefix": ""}]},
		{"name": "admin", "tokens": [%q], "rights": [{"verbs": ["acquire", "read", "break"], "prefix": ""}]}]}`, hashed("desk"), hashed("admin"))
}

func TestRights_AStreamTellsNothingAfterItsClientHasLostThem(t *testing.T) {
	for what, roster := range map[string]string{"token": without("token"), "right": without("right"), "name": toAnother()} {
		offices(t, what, func(t *office) {
			h := t.open("desk", "/v1/events?name=orders%2F1")
			t.become(roster)
			t.take("orders/1")
			if text, ended := h.now(); !ended || strings.Contains(text, "shopkeeper") {
				t.Errorf("ended %t, with the events %s", ended, text)
			}
		})
	}
}

// A stream without events takes a subscription, and counts for the quota.
func TestRights_AStreamEndsSoonAfterItsClientHasLostThem(t *testing.T) {
	offices(t, "", func(t *office) {
		streams := map[string]*hearing{}
		for _, path := range []string{"/v1/events", "/v1/events?name=orders%2F1"} {
			streams[path] = t.open("desk", path)
		}
		time.Sleep(time.Minute)
		for path, h := range streams {
			if text, ended := h.now(); ended {
				t.Errorf("%s ended with all rights: %s", path, text)
			}
		}
		t.become(without("token"))
		time.Sleep(5 * time.Second)
		for path, h := range streams {
			if _, ended := h.now(); !ended {
				t.Errorf("%s goes on", path)
			}
		}
	})
}

// A client receives the breaks of locks to which it has rights when the event is sent. Events are
// kept for a client that returns, also if the end of its old connection has not been noticed.
func TestRights_AStreamTellsByTheNewRights(t *testing.T) {
	for _, row := range []struct{ resumed, noticed bool }{{}, {true, true}, {true, false}} {
		offices(t, fmt.Sprintf("%+v", row), func(t *office) {
			for _, name := range []string{"orders/1", "desk/1", "carts/1"} {
				t.take(name)
			}
			h := t.open("desk", "/v1/events")
			begins, _ := h.now()
			last := regexp.MustCompile(`id: (\S+)`).FindStringSubmatch(begins)
			if last == nil {
				t.Fatal(begins)
			}
			if !row.resumed {
				t.become(without("right")) // with the right to carts instead of orders
			}
			if row.noticed {
				h.stop()
			}
			t.breakUp("orders/1")
			t.breakUp("desk/1")
			t.breakUp("carts/1")
			if row.resumed {
				t.become(without("right"))
				h = t.open("desk", "/v1/events", "Last-Event-ID", last[1])
			}
			text, ended := h.now()
			if ended || strings.Contains(text, "orders/1") || !strings.Contains(text, "desk/1") || !strings.Contains(text, "carts/1") {
				t.Errorf("ended %t, with the events %s", ended, text)
			}
		})
	}
}

func TestRights_AWaitForAChangeIsAnsweredByTheNewRights(t *testing.T) {
	for what, row := range map[string]struct {
		roster string
		status int
	}{"token": {without("token"), 401}, "right": {without("right"), 403}, "none lost": {roles(), 200}} {
		offices(t, what, func(t *office) {
			tag := t.ask("desk", "GET", "/v1/locks/orders%2F1", "").header.Get("ETag")
			answers := make(chan exchange, 1)
			go func() {
				answers <- t.ask("desk", "GET", "/v1/locks/orders%2F1", "", "If-None-Match", tag, "Prefer", "wait=30")
			}()
			synctest.Wait()
			t.become(row.roster)
			t.take("orders/1")
			if got := <-answers; got.status != row.status || strings.Contains(got.body, "shopkeeper") != (row.status == 200) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

// Without this check a wait would last up to a day.
func TestRights_AWaitEndsSoonAfterItsClientHasLostThem(t *testing.T) {
	noDesk := strings.Replace(roles(), `"prefix": "desk/"`, `"prefix": "carts/"`, 1)
	for what, row := range map[string]struct {
		roster string
		status int
		after  time.Duration
	}{
		"token":     {without("token"), 401, 5 * time.Second},
		"right":     {noDesk, 403, 5 * time.Second},
		"none lost": {roles(), 0, 30 * time.Second},
	} {
		for _, wait := range []struct {
			name, method, body string
			status             int // at its end
		}{
			{"for a lock", "POST", `{"leaseId":"w","waitMs":30000,"ticketMs":60000}`, 202},
			{"for a change", "GET", "", 304},
		} {
			offices(t, what+", "+wait.name, func(t *office) {
				t.admin(201, "/v1/locks/desk%2F1", `{"leaseId":"a","ttlMs":600000}`)
				path := "/v1/locks/desk%2F1"
				tag := t.ask("desk", "GET", path, "").header.Get("ETag")
				began := time.Now()
				status := make(chan int, 1)
				go func() {
					status <- t.ask("desk", wait.method, path, wait.body, "If-None-Match", tag, "Prefer", "wait=30").status
				}()
				synctest.Wait()
				t.become(row.roster)
				want := cmp.Or(row.status, wait.status)
				if got := <-status; got != want || time.Since(began) > row.after+time.Second {
					t.Errorf("%d after %v, want %d", got, time.Since(began), want)
				}
				synctest.Wait()
				left := row.status == 0 && wait.method == "POST"
				if text := t.ask("admin", "GET", path, "").body; strings.Contains(text, `"leaseId":"w"`) != left {
					t.Errorf("afterwards: %s", text)
				}
			})
		}
	}
}
