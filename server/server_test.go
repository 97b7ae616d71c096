package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// start serves a store in memory.
func start(t *testing.T, opts ...server.Option) *httptest.Server {
	t.Helper()
	s, err := server.New(memdriver.New(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(recorded(s))
	t.Cleanup(h.Close)
	return h
}

// ask sends a request and returns status and body.
func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, read(t, res)
}

// read reads a body to its end.
func read(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLease_TakeRenewRelease(t *testing.T) {
	h := start(t)
	lock := h.URL + "/v1/locks/orders%2F42"
	for _, step := range []struct {
		method, url, body string
		status            int
		says              string
	}{
		{"POST", lock, `{"leaseId":"a","ttlMs":5000}`, 201, `"key":"orders/42"`},
		{"POST", lock, `{"leaseId":"b"}`, 409, "#held"},
		{"PUT", lock + "/leases/a", `{"ttlMs":6000}`, 200, `"ttlMs":6000`},
		{"DELETE", lock + "/leases/a", "", 204, ""},
		{"POST", lock, `{"leaseId":"b"}`, 201, `"token":`},
		{"PUT", lock + "/leases/a", "", 410, "#released"},
		{"POST", lock + "/leases/b", "", 405, "#method-not-allowed"},
		{"GET", h.URL + "/v1/nothing", "", 404, "#not-found"},
		{"POST", lock, `{"colour":1}`, 400, "colour"},
	} {
		status, text := ask(t, step.method, step.url, step.body)
		if status != step.status || !strings.Contains(text, step.says) {
			t.Errorf("%s %s %s: %d %s", step.method, step.url, step.body, status, text)
		}
	}
}
