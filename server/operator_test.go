package server_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
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
		store := acquires(memdriver.New(), func() error {
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
		time.Sleep(time.Second) // for as long as a result is used
		got := ask(t, "GET", base+"/readyz", "")
		if refused(t, got, server.Unavailable); strings.Contains(got.body, "secret-host") {
			t.Errorf("the answer reveals the store: %s", got.body)
		}
		answered(t, 200, ask(t, "GET", base+"/livez", ""))
		away.Store(false)
		time.Sleep(time.Second)
		answered(t, 200, ask(t, "GET", base+"/readyz", ""))
		s.Drain()
		refused(t, ask(t, "GET", base+"/readyz", ""), server.Draining)
		answered(t, 200, ask(t, "GET", base+"/livez", ""))
	})
}

var eventually = await.Until

func TestMetrics_CountByOperationAndNameNobody(t *testing.T) {
	s, base := serve(t, memdriver.New())
	lock := base + "/v1/locks/orders%2F42"
	ask(t, "POST", lock, `{"leaseId":"a","owner":"shopkeeper"}`)
	ask(t, "POST", lock, `{"leaseId":"b"}`)
	ask(t, "GET", base+"/elsewhere/orders%2F42", "")
	text := ask(t, "GET", base+"/metrics", "").body
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
		text := ask(t, "GET", base+"/metrics", "").body
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
		if got := askAs(t, token, method, base+path, body, header...); got.header.Get("X-Request-Id") == "" {
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
		id := ask(t, "GET", base+"/livez", "", "traceparent", header).header.Get("X-Request-Id")
		if (id == trace) != kept || len(id) != 32 {
			t.Errorf("%q becomes %q", header, id)
		}
	}
}

func TestQuota_WhoWaitsTooOftenIsRefused(t *testing.T) {
	file, _ := openAuth(t, roles())
	_, base := serve(t, memdriver.New(), server.WithAuthenticator(file), server.WithMaxWaiters(2, 1))
	as := func(who, name, id string, wait int) exchange {
		t.Helper()
		body := fmt.Sprintf(`{"leaseId":%q,"waitMs":%d}`, id, wait)
		return askAs(t, who, "POST", base+"/v1/locks/"+name, body)
	}
	const long, short = 60_000, 1
	for _, name := range []string{"a", "b", "orders%2F1"} {
		answered(t, 201, as("admin", name, "holder", short))
	}
	var wg sync.WaitGroup
	wait := func(who, name, id string) { wg.Go(func() { as(who, name, id, long) }) }
	waiting := func(n float64) {
		t.Helper()
		eventually(t, func() bool { return waiters(t, base) == n })
	}
	wait("admin", "a", "w1")
	waiting(1)
	// The key's queue is full, for all clients.
	got := as("admin", "a", "w2", long)
	if refused(t, got, server.TooMany); got.header.Get("Retry-After") != "1" {
		t.Errorf("second waiter of a lock: %v", got.header)
	}
	refused(t, askAs(t, "admin", "GET", base+"/v1/locks/a", "", "If-None-Match", "*", "Prefer", "wait=60"), server.TooMany)
	wait("admin", "b", "w3")
	waiting(2)
	// The client may not wait for more locks. Other clients may, and it may ask without a wait.
	refused(t, as("admin", "orders%2F1", "w4", long), server.TooMany)
	refused(t, askAs(t, "admin", "GET", base+"/v1/events", ""), server.TooMany)
	wait("shop", "orders%2F1", "w5")
	waiting(3)
	answered(t, 201, as("admin", "c", "w6", 0))
	for _, name := range []string{"a", "b", "orders%2F1"} {
		askAs(t, "admin", "DELETE", base+"/v1/locks/"+name+"/leases/holder", "")
	}
	wg.Wait()
	waiting(0)
}

// waiters returns the gauge of the requests that wait.
func waiters(t *testing.T, base string) float64 {
	t.Helper()
	text := answered(t, 200, askAs(t, "admin", "GET", base+"/metrics", ""))
	for line := range strings.Lines(text) {
		var n float64
		if _, err := fmt.Sscanf(line, "leasehold_http_waiters %g", &n); err == nil {
			return n
		}
	}
	t.Fatal("no gauge of waiters")
	return 0
}

// A stream that follows many locks makes the service look at each of them, also while it waits
// for its client to return.
func TestQuota_AStreamCountsForEveryLockThatItFollows(t *testing.T) {
	file, _ := openAuth(t, roles())
	synctest.Test(t, func(t *testing.T) {
		_, base := serve(t, memdriver.New(), server.WithAuthenticator(file), server.WithMaxWaiters(3, 3))
		refused(t, askAs(t, "admin", "GET", base+"/v1/events?name=a&name=b&name=c&name=d", ""), server.TooMany)
		waiting := func(n float64, what string) {
			t.Helper()
			if got := waiters(t, base); got != n {
				t.Errorf("%v wait, want %v %s", got, n, what)
			}
		}
		waiting(0, "for a stream that was refused")
		stream := tune(t, base+"/v1/events?name=a&name=b&name=c", "Authorization", "Bearer admin")
		waiting(3, "for three locks")
		stream.cancel()
		time.Sleep(10 * time.Second)
		waiting(3, "for a client that may return")
		time.Sleep(10 * time.Second)
		waiting(0, "for a client that did not return")
	})
}
