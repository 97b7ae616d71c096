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
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // for sql.Open

	"github.com/leasehold-go/leasehold/internal/test/daemon"
)

// patience bounds every wait for a server. It is used up only if there is a fault.
const patience = time.Minute

// superuser is a user with all rights and without a password.
const superuser = "tester"

// Server is one server. Its methods belong on the test's goroutine.
type Server struct {
	dir, addr string
	settings  []string
	cmd       *exec.Cmd
	gone      chan struct{} // closed when the process has ended
	database  string
}

var (
	shared    *Server
	template  string // a data directory of a server that never ran
	making    sync.Mutex
	databases atomic.Int64
)

// Main runs the tests of a package, after it has called ready with the address of a database on
// the shared server and a pool of connections to it, and ends the server. Parallel tests mostly wait
// for time to pass, so there are more of them than processors.
func Main(m *testing.M, ready func(url string, db *sql.DB)) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	defer func() { _ = os.RemoveAll(template) }()
	var err error
	if shared, err = launch(nil); err != nil {
		panic(fmt.Sprintf("mysqltest: %v", err))
	}
	defer func() {
		shared.kill()
		_ = os.RemoveAll(shared.dir)
	}()
	db, err := shared.open()
	if err != nil {
		panic(fmt.Sprintf("mysqltest: %v", err))
	}
	defer db.Close()
	ready(shared.URL(), db)
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
	making.Lock()
	defer making.Unlock()
	s, err := launch(settings)
	noError(tb, err)
	tb.Cleanup(func() {
		s.kill()
		if tb.Failed() {
			tb.Logf("log of the server:\n%s", s.log())
		}
		_ = os.RemoveAll(s.dir)
	})
	return s
}

// URL returns the address of the server's database for the driver.
func (s *Server) URL() string { return "mysql://" + superuser + "@" + s.addr + "/" + s.database + "?" }

// Addr returns the server's host and port.
func (s *Server) Addr() string { return s.addr }

// DB returns a pool of the superuser, which ends with the test. Each of params is a parameter of a
// DSN.
func (s *Server) DB(tb testing.TB, params ...string) *sql.DB {
	tb.Helper()
	db, err := s.open(params...)
	noError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *Server) open(params ...string) (*sql.DB, error) {
	dsn := superuser + "@tcp(" + s.addr + ")/" + s.database + "?multiStatements=true"
	return sql.Open("mysql", strings.Join(append([]string{dsn}, params...), "&"))
}

// Exec executes statements, separated by semicolons.
func (s *Server) Exec(tb testing.TB, statements string) {
	tb.Helper()
	admin := *s
	if strings.HasPrefix(statements, "CREATE DATABASE") {
		admin.database = ""
	}
	db, err := admin.open()
	noError(tb, err)
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statements)
	noError(tb, err)
}

// launch starts a server on an address of its own.
func launch(settings []string) (*Server, error) {
	from, err := prepared()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mysqltest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, settings: settings, database: "locks"}
	if err = s.fill(from); err == nil {
		for range 5 { // another process may take the address first
			s.addr = fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254), 10000+rand.IntN(10000))
			if err = s.launch(); err == nil {
				return s, nil
			}
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// fill makes the data directory, and the statements that are executed at the start.
func (s *Server) fill(from string) error {
	cp := exec.Command("cp", "-R", from, filepath.Join(s.dir, "data")) //nolint:gosec // our own directories
	if out, err := cp.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the data directory: %w: %s", err, out)
	}
	return os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte("CREATE DATABASE IF NOT EXISTS locks;\n"+
		"CREATE USER IF NOT EXISTS "+superuser+"@'%';\nGRANT ALL ON *.* TO "+superuser+"@'%' WITH GRANT OPTION;\n"), 0o600)
}

// prepared returns the template of data directories, which is made once, since that takes longer
// than to copy it.
func prepared() (string, error) {
	if template != "" {
		return template, nil
	}
	dir, err := os.MkdirTemp("", "mysqltest")
	if err != nil {
		return "", err
	}
	sources := []io.Reader{strings.NewReader("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")}
	for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
		found, _ := filepath.Glob("/usr/share/m*/m*_" + name + ".sql")
		if len(found) == 0 {
			return "", fmt.Errorf("no file *_%s.sql in /usr/share/mysql: "+
				"the tests need the Debian package mariadb-server-core", name)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return "", err
		}
		sources = append(sources, bytes.NewReader(text))
	}
	cmd, err := command("--bootstrap", "--datadir="+dir)
	if err != nil {
		return "", err
	}
	cmd.Stdin = io.MultiReader(sources...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a data directory: %w\n%s", err, out)
	}
	template = dir
	return dir, nil
}

func command(args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath(cmp.Or(os.Getenv("LEASEHOLD_MYSQL_SERVER"), "mariadbd"))
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil {
			return nil, errors.New("no mariadbd: the tests need the Debian package mariadb-server-core")
		}
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{"--no-defaults", "--user=" + me.Username, "--innodb-log-file-size=8M", //nolint:gosec // a server
		"--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"}, args...)...)
	cmd.Env = append(os.Environ(), "TZ=America/New_York")
	dieWithUs(cmd)
	return cmd, nil
}

// launch starts the process, and returns when it accepts connections.
func (s *Server) launch() error {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd, err = command(append([]string{"--datadir=" + filepath.Join(s.dir, "data"), "--init-file=" + filepath.Join(s.dir, "init.sql"),
		"--bind-address=" + host, "--port=" + port, "--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--skip-name-resolve", "--max-connections=500"}, s.settings...)...)
	if err != nil {
		return err
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.gone = make(chan struct{})
	if err := daemon.Start(s.cmd, s.gone); err != nil {
		return err
	}
	db, err := (&Server{addr: s.addr, database: s.database}).open()
	if err != nil {
		return err
	}
	defer db.Close()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.gone:
			return fmt.Errorf("it ended at once:\n%s", s.log())
		default:
		}
		if strings.Contains(s.log(), "ready for connections") && db.PingContext(context.Background()) == nil {
			return nil
		}
	}
	s.kill()
	return fmt.Errorf("not ready after %v:\n%s", patience, s.log())
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text)
}

func (s *Server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// Kill kills the server.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.private(tb)
	s.kill()
}

// Restart starts a server that was killed again, at its address and with its data.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.launch(); err != nil {
		tb.Fatalf("mysqltest: restart: %v", err)
	}
}

// Stop stops the server, as if its machine were frozen.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.private(tb)
	noError(tb, daemon.Stop(s.cmd.Process.Pid))
}

// Cont continues a stopped server.
func (s *Server) Cont(tb testing.TB) { noError(tb, s.cmd.Process.Signal(syscall.SIGCONT)) }

func (s *Server) private(tb testing.TB) {
	tb.Helper()
	if shared != nil && s.addr == shared.addr {
		tb.Fatal("mysqltest: other tests use the server: use Start")
	}
}

func noError(tb testing.TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatalf("mysqltest: %v", err)
	}
}
