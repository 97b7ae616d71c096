package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// A client that asks and does not read holds a connection, and not for long.
func TestConnection_HR_E1_WhoDoesNotReadIsCutOff(t *testing.T) {
	addr := listen(t, memdriver.New(), server.WithWriteTimeout(200*time.Millisecond))
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	many := strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 100)
	for err == nil {
		_, err = io.WriteString(c, many)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client that does not read is served for ever")
	}
}

func TestDrain_HR_E2_AStreamThatFollowsALockEndsAtOnce(t *testing.T) {
	s, err := server.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l, nil) }()
	res, err := http.Get("http://" + l.Addr().String() + "/v1/events?name=k") //nolint:noctx // it ends with the service
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	one := make([]byte, 1)
	if _, err := io.ReadFull(res.Body, one); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("a stream holds the service up: %v", err)
	}
}

func TestServe_HR_E7_EachListenerHasItsOwnTLS(t *testing.T) {
	s, err := server.New(memdriver.New())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := newAuthority(t)
	a.service()
	pair, err := tls.LoadX509KeyPair(a.path("service.pem"), a.path("service.key"))
	a.must(err)
	open := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	closed := open.Clone()
	closed.ClientAuth = tls.RequireAnyClientCert
	get := func(config *tls.Config, shown ...tls.Certificate) (*http.Response, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Serve(l, config) }()
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: shown}, ForceAttemptHTTP2: true, //nolint:gosec // who serves is not the question
		}}
		t.Cleanup(client.CloseIdleConnections)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
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
	if res, err = get(closed, pair); err != nil {
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

// safe is a buffer for several goroutines.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestReady_HR_G7_TellsThatNoMoreConnectionsAreAccepted(t *testing.T) {
	var logged safe
	s, err := server.New(memdriver.New(), server.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(&scarce{Listener: l}, nil) }()
	status, text := ask(t, "GET", "http://"+l.Addr().String()+"/readyz", "")
	refused(t, "no descriptor left", status, text, server.Overloaded)
	if text := logged.String(); !strings.Contains(text, "connections are not accepted") || !strings.Contains(text, "too many open files") {
		t.Errorf("logged %q", text)
	}
}

func TestConnection_HR_G7_OneTooManyIsToldSoByEveryOperation(t *testing.T) {
	const most = 3
	s, err := server.New(memdriver.New(), server.WithMaxConnections(most), server.WithPage(server.PageFull),
		server.WithSlowness(time.Hour, time.Hour)) // the connections say nothing, and stay
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l, nil) }()
	base := "http://" + l.Addr().String()
	var all []net.Conn
	for range most {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	at, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	// What is answered is compared with the document on its way.
	proxy := httptest.NewServer(recorded(httputil.NewSingleHostReverseProxy(at)))
	defer proxy.Close()
	for _, rt := range having(s, server.Overloaded) {
		status, text := ask(t, rt.Method, proxy.URL+aim(rt, "k", "a"), bodyOf(rt, "k", "a"))
		refused(t, rt.Operation, status, text, server.Overloaded)
	}
	if status, text := ask(t, "GET", base+"/livez", ""); status != http.StatusOK {
		t.Errorf("/livez: %d %s", status, text)
	}
	http.DefaultClient.CloseIdleConnections()
	all[0].Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		status, text := ask(t, "GET", base+"/v1/locks", "")
		if status == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("when there is room again: %d %s", status, text)
		}
	}
}

// A balancer has read the answer and resets the connection.
func TestVanish_HR_E6_AResetUndoesNothingIfThatIsSaid(t *testing.T) {
	store := memdriver.New()
	released := make(chan driver.Ref, 1)
	addr := listen(t, &heard{store.Join(), released}, server.WithUndoOnReset(false))
	town := &town{t, store, [2]string{addr, listen(t, store.Join())}}
	if status, text := ask(t, "POST", town.url(1, "/v1/locks/k"), `{"leaseId":"holder"}`); status != 201 {
		t.Fatal(status, text)
	}
	p := town.call(0, "k", "w")
	town.await("k", window, "queued", queueOf(1))
	if status, text := ask(t, "DELETE", town.url(1, "/v1/locks/k/leases/holder"), ""); status != 204 {
		t.Fatal(status, text)
	}
	if status, text := p.answer(); status != 201 {
		t.Fatal(status, text)
	}
	_ = p.SetLinger(0)
	p.die() // by a reset
	// One that is answered by the same service later shows that it has seen the reset.
	for i := range 20 {
		q := town.call(0, fmt.Sprint("other", i), "w")
		if status, text := q.answer(); status != 201 {
			t.Fatal(status, text)
		}
		q.die()
	}
	select {
	case ref := <-released:
		t.Errorf("released %+v", ref)
	default:
	}
	if snap := town.look("k"); !heldBy("w")(snap) {
		t.Errorf("%+v", snap)
	}
}

// heard is a store that tells of releases.
type heard struct {
	*memdriver.Driver
	released chan driver.Ref
}

func (h *heard) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	select {
	case h.released <- ref:
	default:
	}
	return h.Driver.Release(ctx, ref)
}
