package httpdriver_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

func TestCheck_SaysWhatAProxyDoesToPaths(t *testing.T) {
	s, err := server.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refuses := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.EscapedPath(), "%2F") {
			http.NotFound(w, r) // as Apache does
			return
		}
		s.ServeHTTP(w, r)
	})
	for what, c := range map[string]struct {
		h        http.Handler
		severity driver.Severity
		says     string
	}{
		"none":         {s, driver.Good, "a name with a slash reaches the service"},
		"cleans paths": {cleaned(s), driver.Warning, "a proxy changes paths"},
		"refuses %2F":  {refuses, driver.Warning, "404 Not Found"},
	} {
		h := httptest.NewServer(c.h)
		defer h.Close()
		d := open(t, h.URL)
		defer d.Close()
		report, err := d.Check(t.Context())
		if err != nil || len(report.Findings) != 1 || report.Worst() != c.severity || !strings.Contains(fmt.Sprint(report), c.says) {
			t.Errorf("%s: %+v, %v; want %v and %q", what, report, err, c.severity, c.says)
		}
	}
}

func TestCheck_SaysThatTheServiceDoesNotAnswer(t *testing.T) {
	h := httptest.NewServer(http.NotFoundHandler())
	defer h.Close()
	d := open(t, h.URL)
	defer d.Close()
	_, err := d.Check(t.Context())
	var advice interface{ Advice() string }
	if !errors.As(err, &advice) || !strings.Contains(err.Error(), "404 Not Found") || !strings.Contains(advice.Advice(), "the path of a proxy") {
		t.Errorf("%v", err)
	}
}
