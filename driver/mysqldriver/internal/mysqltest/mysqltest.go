// Package mysqltest gives a test a MariaDB server of its own.
//
// Every server is a real mariadbd process on a loopback address of its own, with a temporary
// directory. It ends with the test, and on Linux also if the test binary dies. A test that does
// not stop, kill or configure the server uses a database of the [Shared] one.
// LEASEHOLD_MYSQL_SERVER is the path of another mariadbd.
package mysqltest

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for sql.Open

	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/daemon"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// superuser is a user with all rights and without a password.
const superuser = "tester"

// Server is one server. Its methods belong on the test's goroutine.
type Server struct {
	dir, host string
	port      int
	settings  []string
	process   *daemon.Process
	database  string
}

var (
	all       daemon.Package
	shared    *Server
	databases atomic.Int64
)

// Main runs the tests of a package, after it has called ready with the address of a database on
// the shared server and a pool of connections to it, and ends the server. Parallel tests mostly wait
// for time to pass, so there are more of them than processors.
func Main(m *testing.M, ready func(url string, db *sql.DB)) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	defer all.End()
	shared = Start(&all)
	ready(shared.URL(), shared.DB(&all))
	m.Run()
}

// Shared returns a server with a database that only this test uses.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	s := *shared
	s.database = fmt.Sprintf("test%d", databases.Add(1))
	s.Exec(tb, "CREATE DATABASE "+s.database)
	return &s
}

// Start starts a server with further settings, such as "--read-only".
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "mysqltest") // the path of a socket must be short
	noError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{dir: dir, settings: settings, database: "locks"}
	run(tb, exec.Command("cp", "-R", template(), filepath.Join(dir, "data"))) //nolint:gosec // our own directories
	noError(tb, os.WriteFile(filepath.Join(dir, "init.sql"), []byte("CREATE DATABASE IF NOT EXISTS locks;\n"+
		"CREATE USER IF NOT EXISTS "+superuser+"@'%';\nGRANT ALL ON *.* TO "+superuser+"@'%' WITH GRANT OPTION;\n"), 0o600))
	s.host, s.port, err = address.Free()
	noError(tb, err)
	s.Restart(tb)
	tb.Cleanup(func() {
		s.process.Kill()
		if tb.Failed() {
			tb.Logf("log of the server:\n%s", s.process.Log())
		}
	})
	return s
}

// URL returns the address of the server's database for the driver.
func (s *Server) URL() string {
	return "mysql://" + superuser + "@" + s.Addr() + "/" + s.database + "?"
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// DB returns a pool of the superuser, which ends with the test. Each of params is a parameter of a
// DSN.
func (s *Server) DB(tb testing.TB, params ...string) *sql.DB {
	tb.Helper()
	dsn := superuser + "@tcp(" + s.Addr() + ")/" + s.database + "?multiStatements=true"
	db, err := sql.Open("mysql", strings.Join(append([]string{dsn}, params...), "&"))
	noError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Exec executes statements, separated by semicolons.
func (s *Server) Exec(tb testing.TB, statements string) {
	tb.Helper()
	admin := *s
	if strings.HasPrefix(statements, "CREATE DATABASE") {
		admin.database = ""
	}
	db := admin.DB(tb)
	defer db.Close()
	_, err := db.ExecContext(context.Background(), statements)
	noError(tb, err)
}

// template returns the data directory of a server that never ran. It is made once, since that takes
// longer than to copy it.
var template = sync.OnceValue(func() string {
	dir := all.TempDir()
	sources := []io.Reader{strings.NewReader("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")}
	for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
		found, _ := filepath.Glob("/usr/share/m*/m*_" + name + ".sql")
		if len(found) == 0 {
			all.Fatalf("no file *_%s.sql in /usr/share/mysql: the tests need the Debian package mariadb-server-core", name)
		}
		text, err := os.ReadFile(found[0])
		noError(&all, err)
		sources = append(sources, bytes.NewReader(text))
	}
	cmd := command(&all, "--bootstrap", "--datadir="+dir)
	cmd.Stdin = io.MultiReader(sources...)
	run(&all, cmd)
	return dir
})

func run(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("mysqltest: %s: %v\n%s", cmd.Path, err, out)
	}
}

func command(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("LEASEHOLD_MYSQL_SERVER"), "mariadbd"))
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil {
			tb.Fatal("no mariadbd: the tests need the Debian package mariadb-server-core")
		}
	}
	me, err := user.Current()
	noError(tb, err)
	cmd := exec.Command(path, append([]string{"--no-defaults", "--user=" + me.Username, "--innodb-log-file-size=8M", //nolint:gosec // a server
		"--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"}, args...)...)
	cmd.Env = append(os.Environ(), "TZ=America/New_York")
	return cmd
}

// Restart starts a server that was killed again, at its address and with its data.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	in := func(name string) string { return filepath.Join(s.dir, name) }
	cmd := command(tb, append([]string{"--datadir=" + in("data"), "--init-file=" + in("init.sql"), "--bind-address=" + s.host,
		"--port=" + strconv.Itoa(s.port), "--socket=" + in("socket"), "--pid-file=" + in("pid"), "--skip-name-resolve",
		"--max-connections=500"}, s.settings...)...)
	var err error
	s.process, err = daemon.Launch(cmd, in("log"))
	noError(tb, err)
	db := s.DB(tb)
	defer db.Close()
	noError(tb, s.process.Await(func() bool {
		return strings.Contains(s.process.Log(), "ready for connections") && db.PingContext(context.Background()) == nil
	}))
}

// Kill kills the server.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.private(tb)
	s.process.Kill()
}

// Stop stops the server, as if its machine were frozen.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.private(tb)
	noError(tb, s.process.Stop())
}

// Cont continues a stopped server.
func (s *Server) Cont() { s.process.Cont() }

func (s *Server) private(tb testing.TB) {
	tb.Helper()
	if s.host == shared.host {
		tb.Fatal("mysqltest: other tests use the server: use Start")
	}
}

// Proxy is a proxy to a server.
type Proxy struct {
	*tcpproxy.Proxy
	server *Server
}

// Proxy starts a proxy to the server. It ends with the test.
func (s *Server) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	return &Proxy{tcpproxy.Start(tb, s.Addr()), s}
}

// URL returns the address of the server's database through the proxy.
func (p *Proxy) URL() string { return strings.Replace(p.server.URL(), p.server.Addr(), p.Addr(), 1) }

func noError(tb testing.TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatalf("mysqltest: %v", err)
	}
}
