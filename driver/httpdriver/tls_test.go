package httpdriver_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

// secure starts a service that speaks TLS, and returns its URL and the file of its
// certificate.
func secure(t *testing.T, auth tls.ClientAuthType) (url, ca string) {
	t.Helper()
	h := httptest.NewUnstartedServer(aService(t))
	h.TLS = &tls.Config{ClientAuth: auth} //nolint:gosec // httptest sets the rest
	h.Config.ErrorLog = discard
	h.StartTLS()
	t.Cleanup(h.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	noErr(t, os.WriteFile(ca, text, 0o600))
	return h.URL, ca
}

// Such a call fails at once: the request was not sent, and a retry is pointless.
func TestTLS_HR_E8_AWrongConnectionIsToldAtOnce(t *testing.T) {
	url, ca := secure(t, tls.NoClientCert)
	right := open(t, url+"?ca="+ca+"&server-name=example.com")
	ask.Acquire(t, right, request("k", "a"), driver.Granted)
	plain := listen(t, aService(t))
	for what, c := range map[string]struct{ url, hint string }{
		"unknown authority": {url, "ca=FILE"},
		"wrong name":        {url + "?ca=" + ca + "&server-name=elsewhere.test", "server-name=NAME"},
		"https to http":     {strings.Replace(plain, "http:", "https:", 1), "http://"},
		"http to https":     {strings.Replace(url, "https:", "http:", 1), "https://"},
	} {
		client := clientOf(t, open(t, c.url))
		began := time.Now()
		_, err := client.Mutex("k").TryLock(t.Context())
		if !errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrUnknown) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s: %v, want ErrUnavailable with %s", what, err, c.hint)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s fails after %v", what, took)
		}
	}
}

// retrying is a transport that repeats each request, and cannot connect the second
// time.
type retrying struct{ first, second http.RoundTripper }

func (r retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		again.Body, _ = req.GetBody()
	}
	if res, err := r.first.RoundTrip(req); err == nil {
		_ = res.Body.Close()
	}
	return r.second.RoundTrip(again)
}

// The first of two tries has reached the service.
func TestTransport_HR_C6_AConnectionThatFailsAfterOneThatDidNotIsUnknown(t *testing.T) {
	url := listen(t, aService(t))
	refused := &http.Transport{DialContext: (&net.Dialer{Control: refuse}).DialContext}
	well := new(http.Transport)
	defer well.CloseIdleConnections()
	d := open(t, url, httpdriver.WithClient(&http.Client{Transport: retrying{well, refused}}))
	if _, err := d.Acquire(t.Context(), request("k", "a")); err == nil || isCertain(err) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}

// refuse fails a dial.
func refuse(string, string, syscall.RawConn) error { return syscall.ECONNREFUSED }

// discard drops the log of a server whose clients fail on purpose.
var discard = log.New(io.Discard, "", 0)
