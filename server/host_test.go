package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// askedAs sends a request with a Host by a connection with the local address.
func askedAs(t *testing.T, s *server.Server, local net.Addr, rt *server.Route, host string) exchange {
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, local)
	r := httptest.NewRequestWithContext(ctx, rt.Method, aim(rt, "k", "a"), strings.NewReader(bodyOf(rt, "k", "a")))
	r.Host = host
	w := httptest.NewRecorder()
	recorded(s).ServeHTTP(w, r)
	return exchange{fmt.Sprintf("%s for %q by %v", rt.Operation, host, local), w.Code, w.Header(), w.Body.String()}
}

var tcp = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}

func TestStatus_ANameThatWasReboundIsRefused(t *testing.T) {
	s := open(t, memdriver.New(), server.WithPage(server.PageFull))
	for _, rt := range s.Routes() {
		got := askedAs(t, s, tcp, &rt, "evil.example:8080")
		if refused(t, got, server.Forbidden); !strings.Contains(got.body, "--allowed-host") {
			t.Errorf("%s: no advice in %s", rt.Operation, got.body)
		}
	}
}

func TestHost_IsComparedWithoutAuthentication(t *testing.T) {
	file, _ := openAuth(t, roles())
	const allowed, denied = http.StatusOK, http.StatusForbidden
	for _, row := range []struct {
		host   string
		local  net.Addr
		opts   []server.Option
		status int
	}{
		{"localhost", tcp, nil, allowed},
		{"LOCALHOST.:8080", tcp, nil, allowed},
		{"127.0.0.1:8080", tcp, nil, allowed},
		{"127.8.8.8", tcp, nil, allowed},
		{"[::1]:8080", tcp, nil, allowed},
		{"[::1]", tcp, nil, allowed},
		{"10.1.2.3:8080", tcp, nil, allowed},
		{"[2001:db8::1]:8080", tcp, nil, allowed},
		{"", tcp, nil, allowed},
		{"evil.example", tcp, nil, denied},
		{"evil.example:8080", &net.UDPAddr{}, nil, denied},
		{"localhost.evil.example", tcp, nil, denied},
		{"127.0.0.1.evil.example", tcp, nil, denied},
		{"[localhost]x", tcp, nil, denied},
		{"2130706433", tcp, nil, denied},
		{".", tcp, nil, denied},
		{"evil.example", &net.UnixAddr{Net: "unix"}, nil, allowed},
		{"evil.example", tcp, []server.Option{server.WithAuthenticator(file)}, allowed},
		{"locks", tcp, []server.Option{server.WithAllowedHosts("other"), server.WithAllowedHosts("Locks.")}, allowed},
		{"LOCKS.:8080", tcp, []server.Option{server.WithAllowedHosts("locks:80")}, allowed},
		{"a.locks", tcp, []server.Option{server.WithAllowedHosts("locks")}, denied},
	} {
		s := open(t, memdriver.New(), row.opts...)
		answered(t, row.status, askedAs(t, s, row.local, &server.Route{Method: "GET", Path: "/livez"}, row.host))
		_ = s.Close()
	}
}

func TestOptions_OutOfBoundsAreRefused(t *testing.T) {
	var all []server.Option
	for _, name := range []string{"", ".", "http://locks", "locks/x", "*.locks", "a,b", "a b"} {
		all = append(all, server.WithAllowedHosts(name))
	}
	for _, n := range [][2]int{{0, 1}, {1, 0}, {1, 1_000_001}} {
		all = append(all, server.WithMaxWaiters(n[0], n[1]))
	}
	for i, option := range all {
		if _, err := server.New(memdriver.New(), option); err == nil {
			t.Errorf("option %d is taken", i)
		}
	}
}
