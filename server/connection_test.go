package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/server"
)

// send sends bytes as they are, and returns the answer.
func send(t *testing.T, addr, text string) string {
	t.Helper()
	c := connect(t, addr)
	defer c.Close()
	go func() { _, _ = io.WriteString(c, text) }() // may be cut off
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && line == "" {
		return err.Error()
	}
	return line
}

func TestConnection_H5_WhatIsTooMuchIsRefusedAndTheServiceUnharmed(t *testing.T) {
	addr := listen(t, memdriver.New(), server.WithMaxBody(4<<10))
	head := "POST /v1/locks/k HTTP/1.1\r\nHost: localhost\r\n"
	var headers strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&headers, "X-Header-%d: some value\r\n", i)
	}
	for what, c := range map[string]struct{ text, want string }{
		"10000 headers":      {head + headers.String() + "\r\n", "431"},
		"a long header":      {head + "X: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431"},
		"a long path":        {"GET /v1/locks/" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "431"},
		"a long name":        {"GET /v1/locks/" + strings.Repeat("x", 10<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"},
		"a large body":       {head + "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), "413"},
		"an endless body":    {head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n", 100), "413"},
		"a body of nesting":  {head + "Content-Length: 4000\r\n\r\n" + strings.Repeat("[", 4000), "400"},
		"no HTTP":            {"hello\r\n\r\n", "400"},
		"a wrong length":     {head + "Content-Length: -1\r\n\r\n", "400"},
		"two lengths":        {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "400"},
		"an encoding of %":   {"GET /v1/locks/a%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"},
		"control characters": {"GET /v1/locks/a%00b HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"},
		"no UTF-8":           {"GET /v1/locks/a%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"},
	} {
		if got := send(t, addr, c.text); !strings.HasPrefix(got, "HTTP/1.1 "+c.want) {
			t.Errorf("%s: %q, want %s", what, got, c.want)
		}
	}
	answered(t, 201, ask(t, "POST", addr+"/v1/locks/k", ""))
}

// A client that sends slowly keeps its connection only shortly.
func TestConnection_H5_SlowClientsAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := listenInMemory(t, memdriver.New(), server.WithSlowness(200*time.Millisecond, 200*time.Millisecond))
		head := "POST /v1/locks/k HTTP/1.1\r\nHost: localhost\r\n"
		for what, text := range map[string]string{
			"headers": head,
			"body":    head + "Content-Length: 10\r\n\r\n{",
		} {
			start := time.Now()
			got := send(t, addr, text)
			if took := time.Since(start); took > 300*time.Millisecond || !strings.HasPrefix(got, "HTTP/1.1 4") && got != "EOF" {
				t.Errorf("slow %s: %q after %v", what, got, took)
			}
		}
	})
}

// A body that never arrives must not keep a connection open, for any answer to the request.
func TestConnection_H5_ABodyThatIsNeverSentIsCutOff(t *testing.T) {
	file, _ := openAuth(t, roles())
	const admin = " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin\r\n"
	for what, head := range map[string]string{
		"of an acquire":              "POST /v1/locks/k" + admin,
		"of a probe":                 "GET /livez" + admin,
		"of an operation":            "POST /api/locks/simple/k" + admin,
		"of a stream":                "GET /v1/events" + admin,
		"where there is nothing":     "GET /nowhere" + admin,
		"without credentials":        "POST /v1/locks/k HTTP/1.1\r\nHost: localhost\r\n",
		"of another site's page":     "POST /v1/locks/k" + admin + "Sec-Fetch-Site: cross-site\r\n",
		"of a request that is wrong": "PUT /v1/locks/k/leases/%20" + admin,
		"of a second request":        "GET /livez" + admin + "\r\nGET /livez" + admin,
	} {
		bubble(t, what, func(t *testing.T) {
			c := connect(t, listenInMemory(t, memdriver.New(), server.WithAuthenticator(file)))
			began := time.Now()
			go func() { _, _ = io.WriteString(c, head+"Content-Length: 1000\r\n\r\n{") }()
			text, err := io.ReadAll(c)
			if took := time.Since(began); err != nil || took > 31*time.Second {
				t.Errorf("held for %v: %v %s", took, err, text)
			}
		})
	}
}

// The time limit of a body must not end a stream that follows, which does not read the body.
func TestConnection_AStreamOutlastsTheTimeForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, listenInMemory(t, memdriver.New()))
		go func() {
			_, _ = io.WriteString(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{")
			time.Sleep(time.Second)
			_, _ = io.WriteString(c, "}")
		}()
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if text, err := io.ReadAll(c); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it ended: %v %s", err, text)
		}
	})
}

// The time limit of a body must not end the wait that follows.
func TestConnection_AWaitOutlastsTheTimeForItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slowness, wait = time.Second, 2 * time.Second
		store := memdriver.New()
		addr := listenInMemory(t, store.Join(), server.WithSlowness(slowness, slowness))
		lock := addr + "/v1/locks/k"
		must(t, 201, "POST", lock, `{"leaseId":"a"}`)
		start := time.Now()
		answered(t, 202, ask(t, "POST", lock, fmt.Sprintf(`{"leaseId":"b","waitMs":%d}`, wait.Milliseconds())))
		if took := time.Since(start); took < wait {
			t.Errorf("answered after %v", took)
		}
	})
}

// halfClosed is a listener in memory whose clients close their side after one request.
type halfClosed struct{ *pipenet.Listener }

func (l halfClosed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &closing{Conn: c}, err
}

// closing is the service's side of a connection whose client has closed its own side after one
// request.
type closing struct {
	net.Conn
	request bool // has arrived
}

// Read implements [net.Conn]. The client sends its request by one write.
func (c *closing) Read(p []byte) (int, error) {
	if c.request {
		return 0, io.EOF
	}
	c.request = true
	return c.Conn.Read(p)
}

// halves runs play with a service of half closed clients, on a store that answers after a second.
func halves(t *testing.T, play func(t *town)) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		l, base := network.listen()
		listenAt(t, halfClosed{l}, before(store, func(ctx context.Context, _ *message) error {
			if !timing.Sleep(ctx, time.Second) {
				return context.Cause(ctx)
			}
			return nil
		}))
		play(&town{T: t, store: store, base: [2]string{base}})
	})
}

// A client such as `nc -N` closes its side when it has sent its request, and reads the answer.
func TestHalfClosed_WhatDoesNotWaitIsAnswered(t *testing.T) {
	halves(t, func(t *town) {
		for _, step := range []struct {
			method, path, body string
			status             int
		}{
			{"POST", "/v1/locks/k", `{"leaseId":"a"}`, 201},
			{"POST", "/v1/locks/k", `{"leaseId":"b"}`, 409},
			{"POST", "/v1/locks/k", `{"leaseId":"w","waitMs":60000}`, 0}, // counts as gone
			{"PUT", "/v1/locks/k/leases/a", `{}`, 200},
			{"GET", "/v1/locks/k", "", 200},
			{"GET", "/v1/locks/k?waiters=false", "", 200},
			{"GET", "/v1/locks", "", 200},
			{"POST", "/v1/locks/k:break", `{"leaseId":"a","reason":"x"}`, 200},
			{"POST", "/v1/locks", `{"key":"k","leaseId":"c"}`, 201},
			{"DELETE", "/v1/locks/k/leases/c", "", 204},
		} {
			if got := t.send(0, step.method, step.path, step.body).answer(); got.status != step.status {
				t.Errorf("%s %s %s: %d, want %d", step.method, step.path, step.body, got.status, step.status)
			}
			time.Sleep(5 * time.Second)
			if w := t.look().Waiters; len(w) > 0 {
				t.Errorf("%s %s %s: %+v", step.method, step.path, step.body, w)
			}
		}
	})
}

func TestHalfClosed_AGrantThatReachesNobodyIsGivenBack(t *testing.T) {
	halves(t, func(t *town) {
		t.send(0, "POST", "/v1/locks/k", `{"leaseId":"a"}`).die()
		time.Sleep(1500 * time.Millisecond) // between the grant and its release
		t.holds("a")
		time.Sleep(3500 * time.Millisecond)
		if snap := t.look(); len(snap.Holders) > 0 {
			t.Errorf("%+v", snap)
		}
	})
}

// A client counts as gone if its HTTP/2 connection is silent during a wait.
func TestServe_SilentHTTP2ClientLeavesTheQueue(t *testing.T) {
	config := withTLS(t)
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		s := open(t, store)
		network := pipenet.Listen()
		go func() { _ = s.Serve(network, config) }()
		if _, err := store.Acquire(t.Context(), driver.Request{Key: "k", ID: "holder", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{
			DialContext: network.Dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test does not check the certificate
		}
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://service/v1/locks", strings.NewReader(`{"key":"k","leaseId":"a","waitMs":60000}`))
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := transport.RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
		}()
		waiters := func(within time.Duration) int {
			t.Helper()
			time.Sleep(within)
			snap, err := store.Inspect(t.Context(), "k")
			noErr(t, err)
			return len(snap.Waiters)
		}
		if n := waiters(40 * time.Second); n != 1 {
			t.Errorf("%d wait, want the client that answers pings", n)
		}
		network.Silence()
		if n := waiters(15 * time.Second); n != 0 {
			t.Errorf("%d wait, want 0", n)
		}
		cancel()
		<-asked
	})
}
