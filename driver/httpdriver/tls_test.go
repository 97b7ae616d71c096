package httpdriver_test

import (
	"context"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/wire"
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

// A transport repeats a request that has reached the service, and cannot connect the second time.
func TestTransport_HR_C6_AConnectionThatFailsAfterOneThatDidNotIsUnknown(t *testing.T) {
	refused := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}}
	well := new(http.Transport)
	defer well.CloseIdleConnections()
	twice := transport(func(r *http.Request) (*http.Response, error) {
		again := r.Clone(r.Context())
		again.Body, _ = r.GetBody()
		if res, err := well.RoundTrip(r); err == nil {
			_ = res.Body.Close()
		}
		return refused.RoundTrip(again)
	})
	d := open(t, listen(t, aService(t)), httpdriver.WithClient(&http.Client{Transport: twice}))
	if _, err := d.Acquire(t.Context(), request("k", "a")); err == nil || isCertain(err) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}

// discard drops the log of a server whose clients fail on purpose.
var discard = log.New(io.Discard, "", 0)

// The service may accept the next token before the file has it: this refusal ends with time.
// The refusal of a token that was never accepted is permanent.
func TestOpen_TokenFileIsReadForEachRequest(t *testing.T) {
	var accepted atomic.Value
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+accepted.Load().(string) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"type":"` + wire.ProblemTypes + `unauthenticated","title":"x","status":401}`))
			return
		}
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		noErr(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	}
	list := func(d *httpdriver.Driver) error {
		_, _, err := d.List(t.Context(), "", "")
		return err
	}
	write("one")
	accepted.Store("one")
	d := open(t, url+"?token_file="+file)
	noErr(t, list(d))
	accepted.Store("two")
	if err := list(d); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("the service is ahead of the file: %v, want a temporary error", err)
	}
	if err := list(open(t, url+"?token_file="+file)); !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("a wrong token: %v, want ErrPermanent", err)
	}
	write("two")
	noErr(t, list(d))
}
