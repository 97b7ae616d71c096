package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/daemon"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// servant returns the user that the server runs as if the test is run by root, because
// PostgreSQL refuses root: its own user, or the user nobody.
func servant() (uid, gid int) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ = strconv.Atoi(u.Uid)
		gid, _ = strconv.Atoi(u.Gid)
		return uid, gid
	}
	return 65534, 65534
}

// handOver gives a directory to the user that the server runs as.
func handOver(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid := servant()
	return os.Chown(dir, uid, gid)
}

// unprivileged makes a program run without the rights of root, and die with the
// test binary, even if that is killed.
func unprivileged(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		uid, gid := servant()
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
}

// outlive lets an unprivileged program run on after the test binary has ended.
func outlive(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = 0 }

// StartWithClock is [Start] for a server whose wall clock can be stepped while it runs.
func StartWithClock(tb testing.TB) (*Server, *redistest.Clock) {
	tb.Helper()
	clock, env := redistest.NewClock(tb, directory(tb))
	return start(tb, &Server{bin: binaries(tb), dir: directory(tb), env: env}), clock
}

// Stop stops the server with all its processes, as if its machine were frozen.
func (s *Server) Stop(tb testing.TB) { s.signal(tb, syscall.SIGSTOP) }

// Cont continues a stopped server.
func (s *Server) Cont(tb testing.TB) { s.signal(tb, syscall.SIGCONT) }

// Kill kills the server with all its processes. Acknowledged data is lost
// unless synchronous_commit is on, which it is not by default here.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGKILL)
	<-s.process.Gone
}

// signal sends a signal to the server's first process, which then starts no more processes,
// and to its child processes.
func (s *Server) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if s.database != "" {
		tb.Fatal("postgrestest: other tests use the server: use Start")
	}
	pid := s.process.Cmd.Process.Pid
	pids := []int{pid}
	if sig != syscall.SIGCONT { // first, so that it starts no process that the search would miss
		_ = daemon.Stop(pid)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	noError(tb, err)
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // behind the name, which may contain anything
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, child)
		}
	}
	send := func(pid int) error { return syscall.Kill(pid, sig) }
	if sig == syscall.SIGSTOP {
		send = daemon.Stop
	}
	for _, pid := range pids {
		if err := send(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			tb.Errorf("postgrestest: %v: %v", sig, err)
		}
	}
	for _, pid := range pids {
		if sig == syscall.SIGKILL { // the next server does not start before all have ended
			awaitEnd(pid)
		}
	}
}

// awaitEnd returns when a process has ended: kill returns earlier.
func awaitEnd(pid int) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, _ := strings.Cut(string(text), ") "); err != nil || rest == "" || strings.ContainsAny(rest[:1], "ZX") {
			return
		}
	}
}
