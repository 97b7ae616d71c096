package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/intercept"
	"github.com/leasehold-go/leasehold/internal/test/pipenet"
	"github.com/leasehold-go/leasehold/server"
)

// A client that sends requests and does not read the answers keeps its connection only shortly.
func TestConnection_HR_E1_WhoDoesNotReadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := listenInMemory(t, memdriver.New())
		c := connect(t, addr)
		_ = c.SetWriteDeadline(time.Now().Add(time.Hour))
		many := strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 100)
		var err error
		for err == nil {
			_, err = io.WriteString(c, many)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a client that does not read is served for ever")
		}
	})
}

func TestDrain_HR_E2_AStreamThatFollowsALockEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memdriver.New())
		l, base := network.listen()
		go func() { _ = s.Serve(l, nil) }()
		stream := tune(t, base+"/v1/events?name=k")
		stream.next()
		go func() { _, _ = io.Copy(io.Discard, stream.body) }()
		begin := time.Now()
		if err := s.Shutdown(t.Context()); err != nil || time.Since(begin) > time.Second {
			t.Errorf("a stream delays the end of the service by %v: %v", time.Since(begin), err)
		}
	})
}

// withTLS returns the configuration of a service for TLS with HTTP/2.
func withTLS(t *testing.T) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{*certify(t, t.TempDir(), "service", nil)}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

func TestServe_HR_E7_EachListenerHasItsOwnTLS(t *testing.T) {
	s := open(t, memdriver.New())
	open := withTLS(t)
	closed := open.Clone()
	closed.ClientAuth = tls.RequireAnyClientCert
	get := func(config *tls.Config, shown ...tls.Certificate) (*http.Response, error) {
		l := socket(t)
		go func() { _ = s.Serve(l, config) }()
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: shown}, ForceAttemptHTTP2: true, //nolint:gosec // the test does not check the certificate
		}}
		t.Cleanup(client.CloseIdleConnections)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+"/livez", nil)
		noErr(t, err)
		return client.Do(req)
	}
	res, err := get(open)
	if err != nil || res.ProtoMajor != 2 {
		t.Fatalf("%v %v, want an answer by HTTP/2", res, err)
	}
	res.Body.Close()
	if res, err := get(closed); err == nil {
		res.Body.Close()
		t.Error("the second listener asks for no certificate")
	}
	if res, err = get(closed, open.Certificates...); err != nil {
		t.Fatalf("with a certificate: %v", err)
	}
	res.Body.Close()
}

// scarce is a listener whose process has no descriptor left.
type scarce struct {
	net.Listener
	once sync.Once
}

func (s *scarce) Accept() (c net.Conn, err error) {
	s.once.Do(func() { err = &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)} })
	if err != nil {
		return nil, err
	}
	return s.Listener.Accept()
}

func TestReady_HR_G7_TellsThatNoMoreConnectionsAreAccepted(t *testing.T) {
	var logged safe
	s := open(t, memdriver.New(), server.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	l, base := network.listen()
	go func() { _ = s.Serve(&scarce{Listener: l}, nil) }()
	refused(t, ask(t, "GET", base+"/readyz", ""), server.Overloaded)
	if text := logged.String(); !strings.Contains(text, "connections are not accepted") || !strings.Contains(text, "too many open files") {
		t.Errorf("logged %q", text)
	}
}

func TestConnection_HR_G7_OneTooManyIsToldSoByEveryOperation(t *testing.T) {
	const most = 3
	s := open(t, memdriver.New(), server.WithMaxConnections(most), server.WithPage(server.PageFull),
		server.WithSlowness(time.Hour, time.Hour)) // the connections stay open without requests
	l := socket(t)
	go func() { _ = s.Serve(l, nil) }()
	base := "http://" + l.Addr().String()
	var all []net.Conn
	for range most {
		all = append(all, connect(t, base))
	}
	network.judged.Store(l.Addr().String(), true)
	for _, rt := range having(s, server.Overloaded) {
		refused(t, try(t, base, rt), server.Overloaded)
	}
	answered(t, http.StatusOK, ask(t, "GET", base+"/livez", ""))
	http.DefaultClient.CloseIdleConnections()
	all[0].Close()
	eventually(t, func() bool { return ask(t, "GET", base+"/v1/locks", "").status == http.StatusOK }) // there is room again
}

// A balancer has read the answer and resets the connection.
func TestVanish_HR_E6_AResetUndoesNothingIfThatIsSaid(t *testing.T) {
	var released atomic.Bool
	town := newTown(t, listen, func(store driver.Driver) *intercept.Driver {
		return before(store, func(_ context.Context, m *message) error {
			released.Store(released.Load() || m.Verb == intercept.Release)
			return nil
		})
	}, server.WithUndoOnReset(false))
	town.take("holder")
	p := town.call(0, "w")
	town.queued(1)
	town.release("holder")
	answered(t, 201, p.answer())
	_ = p.Conn.(*net.TCPConn).SetLinger(0)
	p.die() // by a reset
	// A later answer of the same service shows that it has seen the reset.
	for i := range 20 {
		q := town.send(0, "POST", fmt.Sprint("/v1/locks/other", i), `{"leaseId":"w"}`)
		answered(t, 201, q.answer())
		q.die()
	}
	if town.holds("w"); released.Load() {
		t.Error("it was released")
	}
}

// A client that has connected before the service ends, and sends its first request after, is
// answered. Otherwise a restart would fail its request if the socket outlives the service.
func TestDrain_H7_TheFirstRequestOfAnOpenConnectionIsAnswered(t *testing.T) {
	secured := withTLS(t)
	for _, c := range []struct {
		protocol, scheme string
		config           *tls.Config
	}{{"HTTP/1.1", "http", nil}, {"HTTP/1.1", "https", secured}, {"HTTP/2.0", "https", secured}} {
		bubble(t, c.protocol+" "+c.scheme, func(t *testing.T) {
			s, l := open(t, memdriver.New()), pipenet.Listen()
			served := make(chan error, 1)
			go func() { served <- s.Serve(l, c.config) }()
			conn, err := l.Dial(t.Context(), "", "")
			noErr(t, err)
			defer conn.Close()
			if c.config != nil {
				shaken := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{strings.Replace(strings.ToLower(c.protocol), "http/2.0", "h2", 1)}}) //nolint:gosec // the test does not check the certificate
				noErr(t, shaken.HandshakeContext(t.Context()))
				conn = shaken
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(t.Context()) }()
			synctest.Wait() // the listener is closed
			dial := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
			client := &http.Client{Transport: &http.Transport{
				DialContext: dial, DialTLSContext: dial, ForceAttemptHTTP2: c.protocol == "HTTP/2.0",
			}}
			res, err := client.Get(c.scheme + "://service/livez") //nolint:noctx // the service ends
			noErr(t, err)
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK || res.Proto != c.protocol {
				t.Error(res.Status, res.Proto)
			}
			if c.protocol == "HTTP/1.1" && !res.Close {
				t.Error("the answer has no header for the end of the connection")
			}
			if err := <-ended; err != nil {
				t.Errorf("shutdown: %v", err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
			if err := s.Serve(l, nil); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// A connection without a request delays the end by a second, and a closed connection does not
// delay it.
func TestDrain_H7_ASilentConnectionIsWaitedForShortly(t *testing.T) {
	for _, c := range []struct {
		name string
		ends func(net.Conn)
		took time.Duration
	}{
		{"none", nil, 0},
		{"ended before", func(c net.Conn) { _ = c.Close() }, 0},
		{"silent", func(net.Conn) {}, time.Second},
		{"ends meanwhile", func(c net.Conn) { time.AfterFunc(300*time.Millisecond, func() { _ = c.Close() }) }, 300 * time.Millisecond},
	} {
		bubble(t, c.name, func(t *testing.T) {
			s := open(t, memdriver.New())
			l := pipenet.Listen()
			go func() { _ = s.Serve(l, nil) }()
			if c.ends != nil {
				conn, err := l.Dial(t.Context(), "", "")
				noErr(t, err)
				defer conn.Close()
				c.ends(conn)
			}
			synctest.Wait()
			begin := time.Now()
			noErr(t, s.Shutdown(t.Context()))
			if took := time.Since(begin); took < c.took || took > c.took+50*time.Millisecond {
				t.Errorf("the end took %v, want %v", took, c.took)
			}
		})
	}
}
