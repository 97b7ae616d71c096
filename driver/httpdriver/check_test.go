package httpdriver_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func TestCheck_SaysWhatAProxyDoesToPaths(t *testing.T) {
	s := service(t, memdriver.New())
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
		report, err := open(t, listen(t, c.h)).Check(t.Context())
		if err != nil || len(report.Findings) != 1 || report.Worst() != c.severity || !strings.Contains(fmt.Sprint(report), c.says) {
			t.Errorf("%s: %+v, %v; want %v and %q", what, report, err, c.severity, c.says)
		}
	}
}

func TestCheck_SaysThatTheServiceDoesNotAnswer(t *testing.T) {
	_, err := open(t, listen(t, http.NotFoundHandler())).Check(t.Context())
	var advice interface{ Advice() string }
	if !errors.As(err, &advice) || !strings.Contains(err.Error(), "404 Not Found") || !strings.Contains(advice.Advice(), "the path of a proxy") {
		t.Errorf("%v", err)
	}
}
