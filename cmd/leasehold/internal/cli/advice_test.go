//go:build linux || darwin

package cli_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

// advised is a call that goes wrong, and what is said about it.
type advised struct {
	args []string
	code int
	says []string
}

func (a *advised) check(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command(t), a.args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != a.code {
		t.Errorf("%q: %v, want exit code %d", a.args, err, a.code)
	}
	text := string(out)
	for _, want := range a.says {
		if !strings.Contains(text, want) {
			t.Errorf("%q: said %q, want %q", a.args, text, want)
		}
	}
	for _, jargon := range []string{"strconv.", "open :", "is the store http", "is the store file"} {
		if strings.Contains(text, jargon) {
			t.Errorf("%q: said %q, want no %q", a.args, text, jargon)
		}
	}
}

// TestAdvice_HR_F7_IsAboutWhatWentWrong: a program that is no service, and a
// service that does not know who asks.
func TestAdvice_HR_F7_IsAboutWhatWentWrong(t *testing.T) {
	t.Parallel()
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	s, err := server.New(memdriver.New(), server.WithAuthenticator(nobody{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	strict := httptest.NewServer(s)
	defer strict.Close()
	port := strings.TrimPrefix(foreign.URL, "http://")
	for _, a := range []advised{
		{[]string{"list", "--store", foreign.URL}, 69, []string{"404 Not Found", "leasehold serve"}},
		{[]string{"inspect", "--store", foreign.URL, "demo"}, 69, []string{"404 Not Found", "leasehold serve"}},
		{[]string{"run", "--store", strict.URL, "demo", "true"}, 69, []string{"token"}},
		{[]string{"list", "--store", strict.URL}, 69, []string{"token"}},
		{[]string{"serve", "--listen", "nonsense"}, 64, []string{`--listen "nonsense"`, "127.0.0.1:8080"}},
		{[]string{"serve", "--listen", "127.0.0.1:99999"}, 64, []string{`--listen "127.0.0.1:99999"`}},
		{[]string{"serve", "--listen", port}, 69, []string{"in use", "--listen"}},
		{[]string{"run", "--store", "https://h?cert=/tmp/x", "demo", "true"}, 64, []string{"cert", "key", "together"}},
		{[]string{"run", "--store", "rediss://h?key=/tmp/x", "demo", "true"}, 64, []string{"cert", "key", "together"}},
		{[]string{"run", "--limit", "99999999999999999999", "demo", "true"}, 64, []string{"--limit", "too large"}},
		{[]string{"run", "--limit", "x", "demo", "true"}, 64, []string{"--limit", "whole number"}},
		{[]string{"serve", "--max-body", "99999999999999999999"}, 64, []string{"--max-body", "too large"}},
		{[]string{"run", "--store", "file:///proc/none", "demo", "true"}, 69, []string{"give a directory"}},
	} {
		a.check(t)
	}
}

// nobody knows nobody.
type nobody struct{}

func (nobody) Authenticate(*http.Request) (auth.Principal, error) {
	return nil, errors.New("no token")
}
