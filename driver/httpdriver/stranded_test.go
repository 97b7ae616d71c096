package httpdriver_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// router forwards connections to a service, and can forget them.
type router struct {
	net.Listener
	to string

	mu       sync.Mutex
	conns    []net.Conn
	stranded chan struct{} // closed when the present connections stop forwarding
	running  sync.WaitGroup
}

// route starts a router to the service at the address.
func route(t *testing.T, to string) *router {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &router{Listener: l, to: to, stranded: make(chan struct{})}
	r.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.forward(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for _, conn := range r.conns {
			_ = conn.Close()
		}
		r.mu.Unlock()
		r.running.Wait()
	})
	return r
}

func (r *router) forward(client net.Conn) {
	service, err := net.Dial("tcp", r.to)
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	r.conns = append(r.conns, client, service)
	stranded := r.stranded
	r.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { pump(client, service, stranded) })
	pump(service, client, stranded)
	back.Wait()
}

// pump forwards bytes until a connection ends. It drops them once stranded is closed.
func pump(to, from net.Conn, stranded chan struct{}) {
	defer to.Close()
	for buf := make([]byte, 1<<16); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-stranded:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// forget makes the router drop all bytes of the present connections.
func (r *router) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.stranded)
	r.stranded = make(chan struct{})
}

// eachStranded runs f for each protocol, with a store behind a router that can forget the
// connections to it.
func eachStranded(t *testing.T, f func(t *testing.T, d *httpdriver.Driver, sub driver.Subscription, forget func())) {
	t.Helper()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			store := memdriver.New()
			s, err := server.New(store)
			if err != nil {
				t.Fatal(err)
			}
			h := httptest.NewUnstartedServer(s)
			url := "http://"
			if h.EnableHTTP2 = protocol == "HTTP/2.0"; h.EnableHTTP2 {
				h.StartTLS()
				url = "https://"
			} else {
				h.Start()
			}
			r := route(t, h.Listener.Addr().String())
			url += r.Addr().String()
			if h.EnableHTTP2 {
				url += "?skip_verify=true"
			}
			d, err := httpdriver.Open(url, httpdriver.WithTimeout(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = d.Close()
				r.forget()
				h.CloseClientConnections()
				h.Close()
				_ = s.Close()
				_ = store.Close()
			})
			sub, err := d.Watch(func(driver.Hint) {})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			eventually(t, func() bool { return sub.Address() != "" })
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { _, _, _ = d.List(t.Context(), "", "") })
			}
			all.Wait()
			f(t, d, sub, r.forget)
		})
	}
}

// P3: a router or a NAT that has forgotten a connection drops its packets. The service is
// healthy, and other clients reach it.
func TestTransport_ConnectionsThatLeadNowhereCostOneTimeout(t *testing.T) {
	eachStranded(t, func(t *testing.T, d *httpdriver.Driver, sub driver.Subscription, forget func()) {
		forget()
		var err error
		for range 2 {
			_, _, err = d.List(t.Context(), "", "")
		}
		if err != nil {
			t.Errorf("the second request: %v", err)
		}
		eventually(t, func() bool { return sub.Address() != "" })
	})
}

// P3: a try to renew a short lease has less time than most requests.
func TestTransport_ConnectionsThatLeadNowhereCostAShortLeaseOneRenewal(t *testing.T) {
	eachStranded(t, func(t *testing.T, d *httpdriver.Driver, _ driver.Subscription, forget func()) {
		req := request("k", "a")
		req.TTL = 500 * time.Millisecond
		if _, err := d.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		forget()
		var err error
		for _, try := range []time.Duration{req.TTL / 3, 5 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), try)
			d.Renew(ctx, []driver.Ref{{Key: req.Key, ID: req.ID, TTL: req.TTL}}, func(_ int, _ driver.Reply, e error) { err = e })
			cancel()
		}
		if err != nil {
			t.Errorf("the second renewal: %v", err)
		}
	})
}

// A call with a short deadline is no evidence against the connection.
func TestTransport_CallersInAHurryCostNoConnection(t *testing.T) {
	store := memdriver.New()
	s, err := server.New(store)
	if err != nil {
		t.Fatal(err)
	}
	var conns atomic.Int64
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "slow") {
			<-r.Context().Done()
			return
		}
		s.ServeHTTP(w, r)
	}))
	h.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	h.EnableHTTP2 = true
	h.StartTLS()
	d, err := httpdriver.Open(h.URL + "?skip_verify=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = d.Close()
		h.Close()
		_ = s.Close()
		_ = store.Close()
	}()
	const rounds = 20
	for i := range rounds {
		if _, err := d.Acquire(t.Context(), request(fmt.Sprint("k", i), "a")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _ = d.Acquire(ctx, request("slow", "a"))
		cancel()
	}
	if n := conns.Load(); n > rounds/4 {
		t.Errorf("%d connections for %d callers in a hurry", n, rounds)
	}
}
