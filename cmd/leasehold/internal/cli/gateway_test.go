//go:build linux || darwin

package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// doubting is a gateway. Of each kind of request of each client it denies the first and cuts the
// second one off.
type doubting struct {
	service http.Handler
	marks   string // a directory with a file for each client with a renewal that was passed on

	mu   sync.Mutex
	seen map[string]int
}

func (g *doubting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	r.URL.Path, r.URL.RawPath = "/"+path, ""
	g.mu.Lock()
	g.seen[client+r.URL.Path]++
	n := g.seen[client+r.URL.Path]
	g.mu.Unlock()
	switch n {
	case 1:
		g.deny(w, r)
	case 2:
		g.cut(w, r)
	default:
		g.service.ServeHTTP(w, r)
		if r.Method == http.MethodPut {
			_ = os.WriteFile(filepath.Join(g.marks, client), nil, 0o600)
		}
	}
}

// deny answers for the service: it refuses an acquire after the service has granted it,
// and does not pass other requests on.
func (g *doubting) deny(w http.ResponseWriter, r *http.Request) {
	status := http.StatusGone
	if r.URL.Path == "/v1/locks" {
		g.service.ServeHTTP(httptest.NewRecorder(), r)
		status = http.StatusBadGateway
	}
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html>no</html>")
}

// cut passes a request on, and cuts the answer off.
func (g *doubting) cut(w http.ResponseWriter, r *http.Request) {
	g.service.ServeHTTP(httptest.NewRecorder(), r)
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, "{")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// TestClients_HR_C5_BelieveOnlyTheService runs a command with each client until the client has
// renewed its lease. A gateway refuses the first acquire, renewal and release, and cuts off the
// answers to the second. Its refusals do not have the form of the service, so the clients repeat
// their requests.
func TestClients_HR_C5_BelieveOnlyTheService(t *testing.T) {
	live.Test(t)
	t.Parallel()
	a := newArena(t)
	service, err := url.Parse(a.service.url)
	if err != nil {
		t.Fatal(err)
	}
	g := &doubting{service: httputil.NewSingleHostReverseProxy(service), marks: t.TempDir(), seen: make(map[string]int)}
	h := httptest.NewServer(g)
	t.Cleanup(h.Close)
	eachClient(t, func(t *testing.T, name string, program []string) {
		const renewed = `while [ ! -e "$0" ]; do sleep 0.1; done; test "$LEASEHOLD_TOKEN" -gt 0`
		cmd := client(t, a.dir, h.URL+"/"+name, program, name, "sh", "-c", renewed, filepath.Join(g.marks, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		wantFree(t, a.direct, name)
	})
}
