package mysqltest

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// Proxy is a proxy to a server.
type Proxy struct {
	*tcpproxy.Proxy
	server *Server
}

// Proxy starts a proxy to the server. It ends with the test.
func (s *Server) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	return &Proxy{tcpproxy.Start(tb, s.addr), s}
}

// URL returns the address of the server's database through the proxy.
func (p *Proxy) URL() string { return strings.Replace(p.server.URL(), p.server.addr, p.Addr(), 1) }
