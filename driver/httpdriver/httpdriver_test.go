package httpdriver_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
)

func TestOpen_RefusesWhatIsNoService(t *testing.T) {
	for _, rawURL := range []string{"", "h:80", "ftp://h", "http://", "http://user:secret@h", "http://h?x=1", "http:u:secret@h", "http:/:secret@h", "http://h?token=secret", "https://h?ca=/none&x=secret", "http://h#x", "http://h:x:y", "http://u:secret:80", "http://:secret:/x", "http://h?timeout=1s;token-file=/x", "http://h?timeout=1s#x"} {
		if _, err := httpdriver.Open(rawURL); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", rawURL, err)
		}
	}
	for what, o := range map[string]httpdriver.Option{
		"nil":              nil,
		"a short timeout":  httpdriver.WithTimeout(time.Millisecond),
		"no token":         httpdriver.WithToken(""),
		"no client":        httpdriver.WithClient(nil),
		"a client's limit": httpdriver.WithClient(&http.Client{Timeout: time.Second}),
	} {
		if _, err := httpdriver.Open("http://h", o); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// request returns a request for a mutex.
func request(key, id string) driver.Request {
	return driver.Request{Key: key, ID: id, TTL: time.Minute, Since: time.Now()}
}

func TestErrors_TellWhatIsCertainFromWhatIsNot(t *testing.T) {
	closed, err := address.Listen() // no other test is given its port
	noErr(t, err)
	closed.Close()
	cut := listen(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for what, c := range map[string]struct {
		url     string
		certain bool
	}{
		"no listener":  {"http://" + closed.Addr().String(), true},
		"no such host": {"http://leasehold.invalid", true},
		"cut off":      {cut, false},
	} {
		if _, err := open(t, c.url).Acquire(t.Context(), request("k", "a")); err == nil || isCertain(err) != c.certain || c.certain != errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v, certain: %v", what, err, c.certain)
		}
	}
}

// A service accepts the connection, and is silent. Without an answer to the handshake of TLS
// nothing was sent.
func TestTimeout_HR_E8_BoundsACallToASilentServiceAndAHandshakeHasSentNothing(t *testing.T) {
	for _, scheme := range protocols {
		t.Run(scheme, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{Listener: pipenet.Listen()}
				var silent sync.WaitGroup
				silent.Go(func() {
					for conn, err := n.Accept(); err == nil; conn, err = n.Accept() {
						silent.Go(func() { _, _ = io.Copy(io.Discard, conn) })
					}
				})
				d := n.open(t, scheme+"://service", httpdriver.WithTimeout(2*time.Second))
				start := time.Now()
				_, err := d.Acquire(t.Context(), request("k", "a"))
				if took := time.Since(start); err == nil || errors.Is(err, driver.ErrUnavailable) != (scheme == "https") || took > 2*time.Second {
					t.Errorf("%v after %v", err, took)
				}
				_ = n.Close()
				_ = d.Close()
				silent.Wait()
			})
		})
	}
}

func TestToken_IsSentWithEveryRequestAndThePathIsKept(t *testing.T) {
	var wrong atomic.Int64
	s := service(t, memdriver.New())
	url := listen(t, http.StripPrefix("/locks", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			wrong.Add(1)
		}
		s.ServeHTTP(w, r)
	})))
	d := open(t, strings.Replace(url, "http://", "http://:secret@", 1)+"/locks/")
	ask.Acquire(t, d, request("a/b c", "a"), driver.Granted)
	if !ask.Holds(t, d, "a/b c", "a") {
		t.Error("the lock is not held")
	}
	sub, err := d.Watch(func(driver.Hint) {})
	noErr(t, err)
	eventually(t, func() bool { return sub.Address() != "" })
	noErr(t, sub.Close())
	if wrong.Load() != 0 {
		t.Errorf("%d requests without the token", wrong.Load())
	}
}

// TestWatch_GivesUpAStreamWhoseEventDoesNotEnd plays a service that sends one event without
// an end, in short lines.
func TestWatch_GivesUpAStreamWhoseEventDoesNotEnd(t *testing.T) {
	const most = 4 << 20
	line := []byte("data: " + strings.Repeat(" ", 32<<10) + "\n")
	read := make(chan int, 100)
	d := over(t, func(r *http.Request) (*http.Response, error) {
		res, err := (&canned{200, "text/event-stream", nil}).RoundTrip(r)
		body, event := io.Pipe()
		res.Body = body
		go func() {
			n := 0
			_, err := event.Write([]byte("event: granted\n"))
			for ; err == nil && n < most; n += len(line) {
				_, err = event.Write(line)
			}
			_ = event.Close()
			read <- n
		}()
		return res, err
	})
	sub, err := d.Watch(func(h driver.Hint) { t.Errorf("hint %+v", h) })
	noErr(t, err)
	defer sub.Close()
	if n := <-read; n >= most {
		t.Errorf("the driver has read %d bytes of one event", n)
	}
}

// A proxy that changes names asks for "data" instead of "./data".
func TestAcquire_AnswerForAnotherLockIsUndone(t *testing.T) {
	store := memdriver.New()
	s := service(t, store)
	d := open(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(text, []byte(`"./data"`), []byte(`"data"`))))
		s.ServeHTTP(w, r)
	})))
	refused := func(id string) {
		t.Helper()
		if got, err := d.Acquire(t.Context(), request("./data", id)); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), `answers for lock "data"`) {
			t.Errorf("./data: %+v, %v, want an error that names the other lock", got, err)
		}
	}
	refused("a")
	if snap, err := store.Inspect(t.Context(), "data"); err != nil || len(snap.Holders) > 0 {
		t.Errorf("left behind: %+v, %v", snap, err)
	}
	ask.Acquire(t, d, request("data", "b"), driver.Granted)
	refused("c") // and not that the lock is held
}

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
