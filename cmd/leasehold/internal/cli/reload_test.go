package cli

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/leaseholdaudit"
	"github.com/leasehold-go/leasehold/server/auth"
)

// The log reports that the files read before stay in force, so that no new file may have an
// effect.
func TestServe_AHangupWithOneBadFileChangesNothing(t *testing.T) {
	for bad, spoil := range map[string]func(dir string) error{
		"certificate": func(dir string) error { return os.WriteFile(filepath.Join(dir, "cert.pem"), []byte("broken"), 0o600) },
		"rights":      func(dir string) error { return os.WriteFile(filepath.Join(dir, "auth.json"), []byte("{"), 0o600) },
		"audit log":   func(dir string) error { return os.RemoveAll(filepath.Join(dir, "logs")) },
		"":            func(string) error { return nil },
	} {
		t.Run("bad "+bad, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			// The token is "secret".
			rights := func(name string) string {
				return `{"principals":[{"name":"` + name + `","tokens":["sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"],"rights":[{"verbs":["read"],"prefix":""}]}]}`
			}
			s := httptest.NewTLSServer(nil)
			defer s.Close()
			pair := s.TLS.Certificates[0]
			key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
			if err != nil {
				t.Fatal(err)
			}
			cert := write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
			var all files
			if all.tls, err = auth.OpenTLS(cert, write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))), ""); err != nil {
				t.Fatal(err)
			}
			if all.auth, err = auth.OpenFile(write("auth.json", rights("before"))); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
				t.Fatal(err)
			}
			if all.audit, err = leaseholdaudit.Open(filepath.Join(dir, "logs", "log")); err != nil {
				t.Fatal(err)
			}
			defer all.audit.Close()
			write("auth.json", rights("after"))
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			want := "before"
			if bad == "" {
				want = "after"
			}
			if err := all.reload(); (err == nil) != (bad == "") {
				t.Errorf("reloaded: %v", err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(""))
			r.Header.Set("Authorization", "Bearer secret")
			if p, err := all.auth.Authenticate(r); err != nil || p.Name() != want {
				t.Errorf("the token is of %v, %v; want %s", p, err, want)
			}
		})
	}
}
