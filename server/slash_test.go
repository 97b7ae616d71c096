package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// A path that was joined by hand has the slash of a name without an encoding.
func TestServer_ASlashInANameThatIsNotEncodedIsAnsweredWithAHint(t *testing.T) {
	_, base := serve(t, memdriver.New())
	deep := strings.Repeat("/x", 20)
	for path, meant := range map[string]string{
		"POST /v1/locks/orders/42":             "/v1/locks/orders%2F42",
		"GET /v1/locks/orders/42":              "/v1/locks/orders%2F42",
		"GET /v1/locks/a%20b/c:break":          "/v1/locks/a%20b%2Fc:break",
		"PUT /v1/locks/orders/42/leases/a":     "/v1/locks/orders%2F42/leases/a",
		"DELETE /v1/locks/a/leases/b/leases/c": "/v1/locks/a%2Fleases%2Fb/leases/c",
		"GET /v1/locks/x" + deep:               "/v1/locks/x" + strings.ReplaceAll(deep, "/", "%2F"),
		"POST /api/locks/simple/orders/42":     "/api/locks/simple/orders%2F42",
		"GET /v1/locks/a/":                     "",
		"GET /v1/nothing/a/b":                  "",
		"DELETE /v1/locks/a/leases/b/c":        "",
		"POST /prefix/v1/locks":                "",
	} {
		method, path, _ := strings.Cut(path, " ")
		status, text := ask(t, method, base+path, "")
		refused(t, path, status, text, server.NotFound)
		var problem struct{ Detail string }
		if err := json.Unmarshal([]byte(text), &problem); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, text)
		}
		_, hint, _ := strings.Cut(problem.Detail, "a slash in a name is sent as %2F, as in ")
		if hint != meant {
			t.Errorf("%s: the hint is %q, want %q", path, hint, meant)
		}
		if removes := strings.Contains(problem.Detail, `a proxy before the service has to remove "/prefix"`); removes != strings.HasPrefix(path, "/prefix") {
			t.Errorf("%s: %s", path, problem.Detail)
		}
	}
}
