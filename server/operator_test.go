package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/await"
	"github.com/leasehold-go/leasehold/server"
)

func TestHealth_ReadyMeansThatTheStoreCanBeWrittenTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var asked atomic.Int64
		store := acquires(memdriver.New(), func(string) error {
			if asked.Add(1); away.Load() {
				return fmt.Errorf("%w: READONLY secret-host:6379", driver.ErrUnavailable)
			}
			return nil
		})
		s, base := serve(t, store)
		for range 50 {
			must(t, 200, "GET", base+"/readyz", "")
		}
		if n := asked.Load(); n > 10 {
			t.Errorf("the store was asked %d times", n)
		}
		if keys, _, err := store.List(t.Context(), "", ""); err != nil || len(keys) > 0 {
			t.Errorf("the probe leaves %q, %v", keys, err)
		}
		away.Store(true)
		eventually(t, func() bool {
			code, text := ask(t, "GET", base+"/readyz", "")
			if strings.Contains(text, "secret-host") {
				t.Errorf("the answer reveals the store: %s", text)
			}
			return code == 503 && strings.Contains(text, "#unavailable")
		})
		if code, _ := ask(t, "GET", base+"/livez", ""); code != 200 {
			t.Errorf("alive is %d while the store is away", code)
		}
		away.Store(false)
		eventually(t, func() bool {
			code, _ := ask(t, "GET", base+"/readyz", "")
			return code == 200
		})
		s.Drain()
		if code, text := ask(t, "GET", base+"/readyz", ""); code != 503 || !strings.Contains(text, "#draining") {
			t.Errorf("while it drains: %d %s", code, text)
		}
		if code, _ := ask(t, "GET", base+"/livez", ""); code != 200 {
			t.Errorf("alive is %d while it drains", code)
		}
	})
}

var eventually = await.Until

func TestMetrics_CountByOperationAndNameNobody(t *testing.T) {
	s, base := serve(t, memdriver.New())
	lock := base + "/v1/locks/orders%2F42"
	ask(t, "POST", lock, `{"leaseId":"a","owner":"shopkeeper"}`)
	ask(t, "POST", lock, `{"leaseId":"b"}`)
	ask(t, "GET", base+"/elsewhere/orders%2F42", "")
	_, text := ask(t, "GET", base+"/metrics", "")
	for _, want := range []string{
		`leasehold_http_requests_total{cause="",operation="acquire",status="201"} 1`,
		`leasehold_http_requests_total{cause="held",operation="acquire",status="409"} 1`,
		`leasehold_http_requests_total{cause="not-found",operation="none",status="404"} 1`,
		`leasehold_http_request_seconds_count{operation="acquire",status="201"} 1`,
		`leasehold_http_requests{operation="metrics"} 1`,
		`leasehold_http_waiters 0`,
		`go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	for _, secret := range []string{"orders", "shopkeeper", "127.0.0.1"} {
		if strings.Contains(text, secret) {
			t.Errorf("the metrics name %s", secret)
		}
	}
	if problems, err := testutil.CollectAndLint(s.Metrics()); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Every lease of a batch counts like a single renewal.
func TestMetrics_CountEachLeaseOfABatch(t *testing.T) {
	_, base := serve(t, memdriver.New())
	ask(t, "POST", base+"/v1/locks/a", `{"leaseId":"held"}`)
	ask(t, "POST", base+"/v1/locks/b", `{"leaseId":"released"}`)
	ask(t, "DELETE", base+"/v1/locks/b/leases/released", "")
	ask(t, "POST", base+"/v1/leases:renew", `{"leases":[{"key":"a","leaseId":"held"},{"key":"a","leaseId":"gone"},{"key":"b","leaseId":"released"}]}`)
	ask(t, "PUT", base+"/v1/locks/a/leases/gone", `{}`)
	want := []string{`{cause=""} 1`, `{cause="gone"} 2`, `{cause="released"} 1`, `{cause="unavailable"} 0`}
	eventually(t, func() bool {
		_, text := ask(t, "GET", base+"/metrics", "")
		return !slices.ContainsFunc(want, func(line string) bool {
			return !strings.Contains(text, "leasehold_http_renewals_total"+line)
		})
	})
}

// last waits until the last record of a log is of the operation, and returns it.
func (s *safe) last(t *testing.T, operation string) (record map[string]any) {
	t.Helper()
	eventually(t, func() bool {
		lines := strings.Split(strings.TrimSpace(s.String()), "\n")
		record = nil
		return json.Unmarshal([]byte(lines[len(lines)-1]), &record) == nil && record["operation"] == operation
	})
	return record
}

func TestLog_OneRecordPerRequestWithBoundedFieldsAndNoSecrets(t *testing.T) {
	file, _ := openAuth(t, roles())
	log := new(safe)
	level := &slog.LevelVar{}
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
	_, base := serve(t, memdriver.New(), server.WithAuthenticator(file), server.WithObserver(server.LogRequests(logger)))
	send := func(token, method, path, body string, header ...string) {
		t.Helper()
		if got := speak(t, token, method, base+path, body, header...); got.header.Get("X-Request-Id") == "" {
			t.Error("no request id")
		}
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	send("shop", "POST", "/v1/locks/orders%2F42", `{"leaseId":"a","labels":{"card":"no digits"}}`, "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	got := log.last(t, "acquire")
	for key, want := range map[string]any{
		"level": "INFO", "method": "POST", "status": 201.0, "client": "shop", "name": "orders/42", "lease": "a", "trace": trace,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	send("shop", "POST", "/v1/locks/orders%2F"+strings.Repeat("x", 5000), `{}`)
	if got := log.last(t, "acquire"); got["cause"] != "invalid" || len(fmt.Sprint(got)) > 1000 {
		t.Errorf("a long name: %v", got)
	}
	send("secret-of-a-stranger", "GET", "/nowhere/"+strings.Repeat("y", 5000), "")
	if got := log.last(t, "none"); got["cause"] != "unauthenticated" || got["error"] == nil || len(fmt.Sprint(got)) > 1000 {
		t.Errorf("a stranger: %v", got)
	}
	send("shop", "GET", "/livez", "")
	level.Set(slog.LevelDebug)
	send("shop", "GET", "/readyz", "")
	if got := log.last(t, "readyz"); got["level"] != "DEBUG" {
		t.Errorf("a probe: %v", got)
	}
	text := log.String()
	for _, secret := range []string{"secret-of-a-stranger", "no digits", `"operation":"livez"`} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %s:\n%s", secret, text)
		}
	}
}

func TestTrace_AHeaderThatIsNoneGetsAnIdOfItsOwn(t *testing.T) {
	_, base := serve(t, memdriver.New())
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for header, kept := range map[string]bool{
		"00-" + trace + "-00f067aa0ba902b7-01":                   true,
		"cc-" + trace + "-00f067aa0ba902b7-01-what-is-to-come":   true,
		"00-" + trace + "-00f067aa0ba902b7-01-x":                 false,
		"ff-" + trace + "-00f067aa0ba902b7-01":                   false,
		"00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01":  false,
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": false,
		"00-" + trace + "-0000000000000000-01":                   false,
		"00-" + trace + "-00f067aa0ba902b7":                      false,
		"":                                                       false,
		"00-" + trace + "-00f067aa0ba902b7-0g":                   false,
	} {
		id := speak(t, "", "GET", base+"/livez", "", "traceparent", header).header.Get("X-Request-Id")
		if (id == trace) != kept || len(id) != 32 {
			t.Errorf("%q becomes %q", header, id)
		}
	}
}

func TestQuota_WhoWaitsTooOftenIsRefused(t *testing.T) {
	file, _ := openAuth(t, roles())
	s, base := serve(t, memdriver.New(), server.WithAuthenticator(file), server.WithMaxWaiters(2, 1))
	as := func(who, name, id string, wait int) (int, http.Header) {
		t.Helper()
		body := fmt.Sprintf(`{"leaseId":%q,"waitMs":%d}`, id, wait)
		return askAs(t, who, "POST", base+"/v1/locks/"+name, body)
	}
	const long, short = 60_000, 1
	for _, name := range []string{"a", "b", "orders%2F1"} {
		if code, _ := as("admin", name, "holder", short); code != 201 {
			t.Fatal(name, code)
		}
	}
	var wg sync.WaitGroup
	wait := func(who, name, id string) { wg.Go(func() { as(who, name, id, long) }) }
	waiting := func(n float64) {
		t.Helper()
		eventually(t, func() bool { return waiters(t, s) == n })
	}
	wait("admin", "a", "w1")
	waiting(1)
	// The key's queue is full, for all clients.
	if code, h := as("admin", "a", "w2", long); code != 429 || h.Get("Retry-After") != "1" {
		t.Errorf("second waiter of a lock: %d, %v", code, h)
	}
	got := speak(t, "admin", "GET", base+"/v1/locks/a", "", "If-None-Match", "*", "Prefer", "wait=60")
	refused(t, "a watch of a lock", got.status, got.body, server.TooMany)
	wait("admin", "b", "w3")
	waiting(2)
	// The client may not wait for more locks. Other clients may, and it may ask without a wait.
	if code, _ := as("admin", "orders%2F1", "w4", long); code != 429 {
		t.Errorf("third wait of a client: %d", code)
	}
	code, text := spokenAs(t, "admin", "GET", base+"/v1/events", "")
	refused(t, "a stream of a client that waits", code, text, server.TooMany)
	wait("shop", "orders%2F1", "w5")
	waiting(3)
	if code, _ := as("admin", "c", "w6", 0); code != 201 {
		t.Errorf("without a wait: %d", code)
	}
	for _, name := range []string{"a", "b", "orders%2F1"} {
		askAs(t, "admin", "DELETE", base+"/v1/locks/"+name+"/leases/holder", "")
	}
	wg.Wait()
	waiting(0)
}

// waiters returns the gauge of the requests that wait.
func waiters(t *testing.T, s *server.Server) float64 {
	t.Helper()
	_, text := get(t, s, "/metrics", "admin")
	for line := range strings.Lines(text) {
		var n float64
		if _, err := fmt.Sscanf(line, "leasehold_http_waiters %g", &n); err == nil {
			return n
		}
	}
	t.Fatal("no gauge of waiters")
	return 0
}

// get sends a request to the handler without a network.
func get(t *testing.T, s *server.Server, path, who string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+who)
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// speak sends a request of a principal, whose token is its name, and returns the answer. It may
// be called by any goroutine.
func speak(t *testing.T, who, method, url, body string, header ...string) exchange {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return exchange{}
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+who)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return exchange{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return exchange{res.StatusCode, res.Header, string(text)}
}

// askAs sends a request of a principal, and returns status and header of the answer.
func askAs(t *testing.T, who, method, url, body string) (int, http.Header) {
	t.Helper()
	got := speak(t, who, method, url, body)
	return got.status, got.header
}

// spokenAs sends a request of a principal, and returns status and body of the answer.
func spokenAs(t *testing.T, who, method, url, body string, header ...string) (int, string) {
	t.Helper()
	got := speak(t, who, method, url, body, header...)
	return got.status, got.body
}

// A stream that follows many locks makes the service look at each of them, also while it waits
// for its client to return.
func TestQuota_AStreamCountsForEveryLockThatItFollows(t *testing.T) {
	file, _ := openAuth(t, roles())
	synctest.Test(t, func(t *testing.T) {
		s, base := serve(t, memdriver.New(), server.WithAuthenticator(file), server.WithMaxWaiters(3, 3))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := func(names string) *http.Response {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/events?"+names, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer admin")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		res := events("name=a&name=b&name=c&name=d")
		res.Body.Close()
		if n := waiters(t, s); res.StatusCode != 429 || n != 0 {
			t.Errorf("four locks: %d, %v wait", res.StatusCode, n)
		}
		res = events("name=a&name=b&name=c")
		defer res.Body.Close()
		if n := waiters(t, s); res.StatusCode != 200 || n != 3 {
			t.Errorf("three locks: %d, %v wait", res.StatusCode, n)
		}
		cancel()
		time.Sleep(10 * time.Second)
		if n := waiters(t, s); n != 3 {
			t.Errorf("%v wait for a client that may return", n)
		}
		time.Sleep(10 * time.Second)
		if n := waiters(t, s); n != 0 {
			t.Errorf("%v wait for a client that did not return", n)
		}
	})
}
