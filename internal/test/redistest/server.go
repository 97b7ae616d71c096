// Package redistest gives a test Redis servers of its own.
//
// Every server is a real redis-server process on a loopback address of its own, with a
// temporary directory and no persistence. It ends with the test, and also if
// the test binary dies. Tests share no state: starting a server takes
// some 50 ms. LEASEHOLD_REDIS_SERVER is the path of another server program, for example
// Valkey's; the log of the first test of a package has its version.
//
// A test that looks for leaked goroutines with goleak does so in TestMain, or
// in a cleanup registered before [Start]: a running server has goroutines.
package redistest

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leasehold-go/leasehold/internal/test/address"
)

// attempts bounds how often start tries another address because the chosen one was taken in
// the last moment.
const attempts = 10

// Server is one redis-server process. Its methods may be called from any
// goroutine, also while the server is stopped or dead. Methods with a [testing.TB] are
// different: they query the server, fail the test if it does not
// answer, and belong on the test's goroutine.
type Server struct {
	tb     testing.TB
	host   string
	port   int
	dir    string
	args   []string
	config string        // the text of a configuration file, if one is wanted
	certs  *Certificates // nil without TLS
	env    []string      // in addition to the test's own

	mu     sync.Mutex
	proc   *process
	client *redis.Client
}

// Start starts a server and waits until it accepts commands. The arguments
// follow the helper's own on the command line, as in
//
//	redistest.Start(t, "--appendonly", "yes", "--requirepass", "secret")
//
// and must leave the port, the address and the log level as they are.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return start(tb, new(Server), append(slices.Clone(defaults), args...))
}

// program returns the server to start: that of LEASEHOLD_REDIS_SERVER, the path of a
// redis-server or valkey-server, or the redis-server that is installed.
func program() string { return cmp.Or(os.Getenv("LEASEHOLD_REDIS_SERVER"), "redis-server") }

// reported logs the version only once.
var reported sync.Once

// report logs the version of the server, once for each test binary.
func report(tb testing.TB) {
	reported.Do(func() {
		out, err := exec.Command(program(), "--version").CombinedOutput()
		if err == nil {
			tb.Logf("redistest: %s: %s", program(), strings.TrimSpace(string(out)))
		}
	})
}

// defaults are the arguments of every server but sentinels.
var defaults = []string{
	"--save", "",
	"--appendonly", "no",
	"--protected-mode", "no",
	"--repl-diskless-sync-delay", "0", // a replica does not wait for other replicas
	"--jemalloc-bg-thread", "no", // it sleeps until a time of the wall clock: if that is held, it spins
}

// start starts a server from its configuration file, if it has one, and from
// arguments.
func start(tb testing.TB, s *Server, args []string) *Server {
	tb.Helper()
	if _, err := exec.LookPath(program()); err != nil {
		tb.Fatalf("redistest: %v: the tests need a real Redis server; `make test` installs it", err)
	}
	report(tb)
	s.tb, s.dir, s.args = tb, tb.TempDir(), args
	if s.config != "" {
		s.args = slices.Insert(s.args, 0, write(tb, s.dir, "redis.conf", s.config))
	}
	s.launchAnywhere()
	tb.Cleanup(s.close)
	return s
}

// launchAnywhere picks addresses until the server could bind one. If the server has a host
// already, only the port is new.
func (s *Server) launchAnywhere() {
	s.tb.Helper()
	var err error
	for range attempts {
		var host string
		if host, s.port, err = address.FreeOn(s.host); err != nil {
			continue
		}
		s.host = host
		if err = s.launch(); err == nil {
			return
		}
	}
	s.tb.Fatalf("redistest: start redis-server: %v", err)
}

// launch starts the process on the server's port. It returns when the server is
// ready, or has logged one of the marks.
func (s *Server) launch(marks ...string) error {
	port := []string{"--port", strconv.Itoa(s.port)}
	if s.certs != nil {
		port = []string{"--port", "0", "--tls-port", strconv.Itoa(s.port)}
	}
	args := append(append(slices.Clone(s.args), port...),
		"--bind", s.host,
		"--bind-source-addr", s.host, // other nodes, primaries and sentinels identify it by this address
		"--dir", s.dir,
		"--daemonize", "no",
		"--logfile", "",
	)
	cmd := exec.Command(program(), args...)
	cmd.Env = append(os.Environ(), s.env...)
	proc, err := spawn(cmd, marks...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = proc
	return nil
}

// close ends the server for good. The client is closed first, so that it does not
// reconnect to the next server on the port.
func (s *Server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		_ = s.client.Close()
	}
	if err := s.proc.kill(); err != nil {
		s.tb.Errorf("redistest: end redis-server: %v", err)
	}
	if s.tb.Failed() {
		s.tb.Logf("redis-server at %s, end of its log:\n%s", s.Addr(), s.proc.log.tail())
	}
}

// Addr returns the server's address as host:port. It stays the same over
// [Server.Restart].
func (s *Server) Addr() string {
	return net.JoinHostPort(s.host, strconv.Itoa(s.port))
}

// Host returns the server's IP address.
func (s *Server) Host() string { return s.host }

// Port returns the server's TCP port.
func (s *Server) Port() int { return s.port }

// Dir returns the server's working directory.
func (s *Server) Dir() string { return s.dir }

// URL returns the server's address as a redis:// URL, or rediss:// with TLS, with
// the password if the arguments have --requirepass.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.certs != nil {
		u.Scheme = "rediss"
	}
	if password := s.password(); password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String()
}

// Pid returns the id of the process, which [Server.Restart] changes.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Client returns a client for looking at the server and for administering it.
// It is the same at every call and is closed with the server.
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		var secure *tls.Config
		if s.certs != nil {
			secure = s.certs.client
		}
		s.client = redis.NewClient(&redis.Options{
			Addr:            s.Addr(),
			TLSConfig:       secure,
			Password:        s.password(),
			ClientName:      "redistest",
			DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{
				Mode: maintnotifications.ModeDisabled,
			},
		})
	}
	return s.client
}

// password returns the argument after --requirepass.
func (s *Server) password() string {
	i := slices.Index(s.args, "--requirepass")
	if i < 0 || i+1 == len(s.args) {
		return ""
	}
	return s.args[i+1]
}

// Stop freezes the process with SIGSTOP: connections stay open and the kernel still
// accepts new ones, but there are no answers. On return the process
// has stopped.
func (s *Server) Stop() { s.signal("stop", (*process).stop) }

// Cont wakes a process that [Server.Stop] froze.
func (s *Server) Cont() { s.signal("continue", (*process).cont) }

// Kill ends the process with SIGKILL and waits until it is gone. Data that was not
// persisted is lost.
func (s *Server) Kill() { s.signal("kill", (*process).kill) }

func (s *Server) signal(verb string, send func(*process) error) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := send(s.proc); err != nil {
		s.tb.Errorf("redistest: %s redis-server at %s: %v", verb, s.Addr(), err)
	}
}

// Restart starts the server again at the same address, in the same directory and
// with the same arguments, after killing it if it still runs. It returns when
// the server accepts commands.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.tb.Errorf("redistest: restart redis-server at %s: %v", s.Addr(), err)
	}
}

// RestartLoading is [Server.Restart], after saving all data, but returns while
// the server loads them. Loading a key takes it perKey.
func (s *Server) RestartLoading(perKey time.Duration) {
	s.tb.Helper()
	if err := s.admin("SAVE"); err != nil {
		s.tb.Fatalf("redistest: save: %v", err)
	}
	s.Kill()
	args := s.args
	s.args = append(slices.Clone(args),
		"--key-load-delay", strconv.FormatInt(perKey.Microseconds(), 10),
		"--loading-process-events-interval-bytes", "1024",
	)
	err := s.launch("Loading RDB produced by")
	s.args = args
	if err != nil {
		s.tb.Errorf("redistest: restart redis-server at %s: %v", s.Addr(), err)
	}
}

// write puts a file into a directory and returns its path.
func write(tb testing.TB, dir, name, text string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return path
}
