package postgrestest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/daemon"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// Bouncer starts a PgBouncer in transaction mode before the server, and returns the
// address of the server's own database through it. It ends with the test.
func (s *Server) Bouncer(tb testing.TB, settings ...string) string {
	tb.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			tb.Fatal("postgrestest: no pgbouncer: the tests need one; `make test` installs it")
		}
	}
	host, port, err := address.Free()
	noError(tb, err)
	dir := directory(tb)
	ini := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n%s\n", s.host, s.port, superuser, host, port, strings.Join(settings, "\n"))
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil { //nolint:gosec // another user reads it, and it is no secret
		tb.Fatalf("postgrestest: %v", err)
	}
	cmd := s.command("postgres", file)
	cmd.Path, cmd.Args[0], cmd.Dir = path, path, dir
	process, err := daemon.Launch(cmd, filepath.Join(dir, "log"))
	noError(tb, err)
	tb.Cleanup(func() {
		if process.Kill(); tb.Failed() {
			tb.Logf("log of PgBouncer:\n%s", process.Log())
		}
	})
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	noError(tb, process.Await(func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}))
	return strings.Replace(s.URL(), s.addr(), addr, 1)
}

// Proxy is a proxy to a server. It finds the text of a request only if the client sends it as
// text, with default_query_exec_mode=exec.
type Proxy struct {
	*tcpproxy.Proxy
	server *Server
}

// Proxy starts a proxy to the server. It ends with the test.
func (s *Server) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	return &Proxy{tcpproxy.Start(tb, s.addr()), s}
}

// URL returns the address of the database that every server has, through the proxy.
func (p *Proxy) URL() string { return strings.Replace(p.server.URL(), p.server.addr(), p.Addr(), 1) }

// addr returns host and port of the server.
func (s *Server) addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }
