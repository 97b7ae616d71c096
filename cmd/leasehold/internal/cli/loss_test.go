//go:build linux || darwin

package cli_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// Commands print the deadline of their lease to a pipe that they open, and all their
// descendants hold it open: the end of the pipe proves that all have ended, also if
// leasehold itself was killed.
const (
	begin = `exec >$PIPE; `
	ready = `echo $LEASEHOLD_DEADLINE; `
	// daemon starts a process without a parent, in a new session, that ignores TERM.
	daemon = `trap "" TERM; (setsid sh -c "while :; do sleep 1; done" &); `
	// stubborn also ignores TERM itself.
	stubborn = begin + daemon + ready + `while :; do sleep 1; done`
)

// TestRun_C2_HR_F8_FrozenStoreKillsGroupBeforeLeaseEndsAndRunEndsAtOnce: leasehold must not wait
// for the store after its command is dead.
func TestRun_C2_HR_F8_FrozenStoreKillsGroupBeforeLeaseEndsAndRunEndsAtOnce(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	// The guard kills a twentieth of the TTL before the end, for a busy machine. The grace is
	// longer than a stall of the machine; otherwise the command could be dead before the
	// message about the loss.
	r := startRun(t, server.URL(), "--ttl", "15s", "--grace", "4s", "demo", "sh", "-c", stubborn)
	r.wantGoneBefore(r.endsAfter(15*time.Second, server.Stop))
	dead := time.Now()
	r.wantCode(79)
	// The release timeout is five seconds.
	if took := time.Since(dead); took > 4500*time.Millisecond {
		live.Late(t, "run ended %v after its command", took)
	}
	r.wantSaid("lease lost: the store has not confirmed it in time; the command gets TERM now and KILL after 4s")
}

func TestRun_C2_StoreThatComesBackLosesNothing(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	r := startRun(t, server.URL()+"?timeout=500ms", "--ttl", "15s", "--grace", "100ms", "demo", "sh", "-c", begin+ready+"read line; exit 5")
	r.deadline()
	server.Stop()
	r.awaitSaid("the store does not confirm the lease; unless it does, the command is ended in")
	server.Cont()
	r.awaitSaid("the store confirms the lease again")
	r.stdin.Close()
	r.wantCode(5)
}

func TestRun_P2_StoppedWrapperDoesNotKeepTheCommandAlive(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	r := startRun(t, url, "--ttl", "15s", "--grace", "300ms", "demo", "sh", "-c", stubborn)
	r.wantGoneBefore(r.endsAfter(15*time.Second, func() { r.signal(syscall.SIGSTOP) }))
	r.signal(syscall.SIGCONT)
	r.wantCode(79)
}

// TestRun_UnconfirmedReleaseIsTold: with 80 if the command succeeded.
func TestRun_UnconfirmedReleaseIsTold(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for script, code := range map[string]int{"exit 0": 80, "exit 6": 6} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := startRun(t, server.URL(), "demo", "sh", "-c", begin+ready+"read line; "+script)
			r.deadline()
			server.Stop()
			r.stdin.Close()
			r.wantCode(code)
			r.wantSaid(`lock "demo": release: outcome unknown`)
		})
	}
}

// If a signal ended the process during the release, the lock would stay for its TTL. Only
// a second signal may end it.
func TestRun_OneSignalDuringTheReleaseLeavesNoLockBehind(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	r := startRun(t, server.URL(), "-v", "--ttl", "10m", "demo", "sh", "-c", begin+ready+"read line; exit 6")
	r.deadline()
	server.Stop()
	r.stdin.Close()
	r.awaitSaid("command ended with code 6") // its lock is being released
	r.signal(syscall.SIGTERM)
	time.AfterFunc(200*time.Millisecond, server.Cont) // the signal arrives long before the answer
	r.wantCode(6)
	if _, err := newClient(t, server.URL()).Mutex("demo").TryLock(t.Context()); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

func breakLock(t *testing.T, client *leasehold.Client, key, reason string) {
	t.Helper()
	s := awaitLock(t, client, key, isHeld)
	if err := client.Break(t.Context(), key, s.Holders[0].ID, reason); err != nil {
		t.Fatal(err)
	}
}

// running is a process of `leasehold run`.
type running struct {
	*process
	stdin *os.File
	pipe  *os.File // see begin
	lines *bufio.Reader
}

func startRun(t *testing.T, url string, args ...string) *running {
	t.Helper()
	return startRunSaying(t, nil, url, args...)
}

// startRunSaying is startRun with stderr as standard error, unless that is nil.
func startRunSaying(t *testing.T, stderr *os.File, url string, args ...string) *running {
	t.Helper()
	inR, inW := pipe(t)
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &running{stdin: inW, process: launch(t, func(cmd *exec.Cmd) {
		cmd.Env, cmd.Stdin, cmd.SysProcAttr = append(os.Environ(), "PIPE="+name), inR, &syscall.SysProcAttr{Setpgid: true}
		if stderr != nil {
			cmd.Stderr = stderr
		}
	}, append([]string{"run", "--store", url}, args...)...)}
	inR.Close()
	r.open(name)
	return r
}

// open waits until the command opens its pipe.
func (r *running) open(name string) {
	r.t.Helper()
	stuck := time.AfterFunc(bound, func() {
		_ = r.Process.Kill()
		_ = os.WriteFile(name, nil, 0) // unblocks the open below
	})
	defer stuck.Stop()
	f, err := os.Open(name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	r.pipe, r.lines = f, bufio.NewReader(f)
}

func (r *running) line() string {
	r.t.Helper()
	r.bound()
	line, err := r.lines.ReadString('\n')
	if err != nil {
		r.t.Fatalf("the command printed %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// bound limits the time of reads of the pipe.
func (r *running) bound() {
	r.t.Helper()
	if err := r.pipe.SetReadDeadline(time.Now().Add(bound)); err != nil {
		r.t.Fatal(err)
	}
}

// deadline waits for the command to start, and returns the end of its lease.
func (r *running) deadline() time.Time {
	r.t.Helper()
	at, err := time.Parse(time.RFC3339Nano, r.line())
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// endsAfter calls stop, which prevents further renewals, and returns the latest end of the
// lease: the deadline that the command has printed, or, if the machine was so slow that a
// renewal is possible since then, ttl from now.
func (r *running) endsAfter(ttl time.Duration, stop func()) time.Time {
	r.t.Helper()
	deadline := r.deadline()
	stop()
	if time.Until(deadline) > ttl*2/3 {
		return deadline
	}
	return time.Now().Add(ttl)
}

// wantGoneBefore waits until all processes of the command have ended, and checks that this is
// before the deadline. It uses [live.Late], because no kill happens while the machine stalls.
func (r *running) wantGoneBefore(deadline time.Time) {
	r.t.Helper()
	r.bound()
	if _, err := io.Copy(io.Discard, r.lines); err != nil {
		r.t.Fatalf("a process of the command is left: %v", err)
	}
	if late := time.Since(deadline); late > 0 {
		live.Late(r.t, "gone %v after the end of the lease", late)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}
