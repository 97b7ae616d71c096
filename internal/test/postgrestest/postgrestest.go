// Package postgrestest gives a test a PostgreSQL server of its own.
//
// Every server is a real postgres process on a loopback address of its own, with a
// temporary directory, without a password and without protection against crashes. It ends
// with the test, and on Linux also if the test binary dies. Starting one takes half a
// second, and the first one of a test binary a second or two more. A test that does not
// change the server uses a database of the [Shared] one. LEASEHOLD_POSTGRES_SERVER is the
// path of another postgres program. Its directory must contain the other programs too.
package postgrestest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/daemon"
)

// patience bounds every wait for a server. It is long because the machine may be
// busy, and is used up only if there is a fault.
const patience = 30 * time.Second

// maxConnections is the default limit of connections: a client may have
// thirteen, and a test runs a dozen cases of several clients in parallel.
const maxConnections = 1000

// superuser is the name of the server's superuser.
const superuser = "tester"

// Server is one PostgreSQL server. Its methods belong on the test's goroutine.
type Server struct {
	bin, dir string
	host     string
	port     int
	settings []string
	env      []string // of the server, in addition to the helper's own
	lasting  bool     // it lives until the test binary has ended
	database string   // of a test that shares the server, or ""
	process  *daemon.Process
}

var names atomic.Int64 // of databases

// Start starts a server and waits until it accepts connections. Settings follow
// the helper's own, as in
//
//	postgrestest.Start(t, "default_transaction_isolation=serializable")
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	return start(tb, &Server{bin: binaries(tb), dir: directory(tb), settings: settings})
}

func start(tb testing.TB, s *Server) *Server {
	tb.Helper()
	s.copyTemplate(tb)
	return launched(tb, s)
}

func (s *Server) copyTemplate(tb testing.TB) {
	tb.Helper()
	template, err := template(s.bin)
	noError(tb, err)
	s.must(tb, s.program("cp", "-R", template, s.data()))
}

var templates struct {
	mu          sync.Mutex
	dir         string
	untilTheEnd io.Closer // never closed; kept so that it is not garbage collected
}

// template returns the data directory of a server that never ran. It is made once for all
// servers of a test binary, since making it takes longer than copying it.
func template(bin string) (string, error) {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	if templates.dir != "" {
		return templates.dir, nil
	}
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		return "", err
	}
	if templates.untilTheEnd, err = removeAtTheEnd(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if err := handOver(dir); err != nil {
		return "", err
	}
	s := &Server{bin: bin, dir: dir}
	if out, err := s.command("initdb", "--pgdata", s.data(), "--username", superuser, "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions").CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	templates.dir = s.data()
	return templates.dir, nil
}

// removeAtTheEnd starts a shell that removes a directory when the test binary has ended for
// any reason. The shell reads from a pipe whose other end only the binary has, and
// ignores signals from the keyboard.
func removeAtTheEnd(dir string) (io.Closer, error) { return atTheEnd(`rm -rf "$1"`, dir) }

func atTheEnd(script string, args ...string) (io.Closer, error) {
	cmd := exec.Command("sh", append([]string{"-c", `trap "" HUP INT TERM; read -r _; ` + script, "sh"}, args...)...) //nolint:gosec // scripts of this package
	cmd.Dir = os.TempDir()
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return pipe, cmd.Start()
}

// launched starts a server whose data directory is ready.
func launched(tb testing.TB, s *Server) *Server {
	tb.Helper()
	s.launchAnywhere(tb)
	tb.Cleanup(func() { s.stop(tb) })
	return s
}

// URL returns the address of the database that every server has, or of the test's database on
// the [Shared] server.
func (s *Server) URL() string { return s.url(cmp.Or(s.database, "postgres")) }

// Database makes a database, and returns its address.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	return s.url(s.create(tb))
}

// create makes a database, and returns its name.
func (s *Server) create(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test%d", names.Add(1))
	s.must(tb, s.command("createdb", "--host", s.host, "--port", strconv.Itoa(s.port), "--username", superuser, name))
	return name
}

func (s *Server) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Host: s.addr(),
		Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// binaries returns the directory of the programs: from LEASEHOLD_POSTGRES_SERVER, or of the
// newest installed version, because Debian does not put it into the PATH.
func binaries(tb testing.TB) string {
	tb.Helper()
	named := os.Getenv("LEASEHOLD_POSTGRES_SERVER")
	if path, err := exec.LookPath(cmp.Or(named, "postgres")); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil { // the other programs are in its directory
			return filepath.Dir(path)
		}
	} else if named != "" {
		tb.Fatalf("postgrestest: LEASEHOLD_POSTGRES_SERVER: %v", err)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		tb.Fatal("postgrestest: no postgres: the tests need a real PostgreSQL server; `make test` installs it")
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }))
}

// version returns the version in a path of Debian.
func version(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

// directory makes a directory for the user that the server runs as. It is outside
// the test's directories, because another user cannot read them.
func directory(tb testing.TB) string {
	tb.Helper()
	dir := lastingDirectory(tb)
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("postgrestest: %v", err)
		}
	})
	return dir
}

// lastingDirectory is [directory] for data that outlives the test.
func lastingDirectory(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "postgrestest")
	if err == nil {
		err = handOver(dir)
	}
	noError(tb, err)
	return dir
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	return s.program(filepath.Join(s.bin, name), args...)
}

// program is [Server.command] for a program that does not come with the server.
func (s *Server) program(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = s.dir, []string{"HOME=" + s.dir, "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	unprivileged(cmd)
	return cmd
}

func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("postgrestest: %v", err)
	}
}

func (s *Server) must(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("postgrestest: %s: %v\n%s", filepath.Base(cmd.Path), err, out)
	}
}

// launchAnywhere starts the process on a free address.
func (s *Server) launchAnywhere(tb testing.TB) {
	tb.Helper()
	var err error
	s.host, s.port, err = address.Free()
	noError(tb, err)
	noError(tb, s.launch())
}

// launch starts the process, and returns when it is ready.
func (s *Server) launch() error {
	settings := append([]string{
		"listen_addresses=" + s.host, "port=" + strconv.Itoa(s.port), "unix_socket_directories=",
		"fsync=off", "synchronous_commit=off", "full_page_writes=off",
		"max_connections=" + strconv.Itoa(maxConnections),
	}, s.settings...)
	args := []string{"-D", s.data()}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	cmd := s.command("postgres", args...)
	if s.lasting {
		outlive(cmd)
	}
	cmd.Env = append(cmd.Env, s.env...)
	process, err := daemon.Launch(cmd, filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	s.process = process
	// Check its own log: another server may answer on the port.
	return process.Await(func() bool { return strings.Contains(process.Log(), "ready to accept") })
}

// Restart starts a server that was killed again, at its address and with its data.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	noError(tb, s.launch())
}

// stop ends the server at once; its children end with it.
func (s *Server) stop(tb testing.TB) {
	_ = s.process.Cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.process.Gone:
	case <-time.After(patience):
		s.process.Kill()
		tb.Errorf("postgrestest: the server did not end within %v", patience)
	}
	if tb.Failed() {
		tb.Logf("log of the PostgreSQL server:\n%s", s.process.Log())
	}
}

// Standby starts a server that follows this one by streaming replication, as a
// replica that may be promoted.
func (s *Server) Standby(tb testing.TB) *Server {
	tb.Helper()
	r := &Server{bin: s.bin, dir: directory(tb)}
	s.must(tb, r.command("pg_basebackup", "--pgdata", r.data(), "--host", s.host, "--port", strconv.Itoa(s.port),
		"--username", superuser, "--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync"))
	launched(tb, r)
	s.awaitStreaming(tb)
	return r
}

// awaitStreaming returns when the primary reports that a standby follows.
func (s *Server) awaitStreaming(tb testing.TB) {
	tb.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out, err := s.command("psql", "--host", s.host, "--port", strconv.Itoa(s.port), "--username", superuser, "--tuples-only",
			"--command", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "postgres").Output()
		if n, _ := strconv.Atoi(strings.TrimSpace(string(out))); err == nil && n > 0 {
			return
		}
	}
	tb.Fatalf("postgrestest: no standby follows after %v", patience)
}

// Promote promotes a standby to a primary, and returns when it is one.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.must(tb, s.command("pg_ctl", "promote", "--pgdata", s.data(), "--wait"))
}
