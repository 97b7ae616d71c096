//go:build linux || darwin

package cli_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// Commands print the deadline of their lease to a pipe that they have opened
// themselves, and their descendants hold it open: its end is the proof that
// nothing of them is left, whatever has become of leasehold.
const (
	begin = `exec >$PIPE; `
	ready = `echo $LEASEHOLD_DEADLINE; `
	// daemon has no parent and a session of its own, and takes no TERM.
	daemon = `trap "" TERM; (setsid sh -c "while :; do sleep 1; done" &); `
	// stubborn takes no TERM either.
	stubborn = begin + daemon + ready + `while :; do sleep 1; done`
)

func TestRun_C2_FrozenStoreKillsGroupBeforeLeaseEnds(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	// A twentieth of the TTL is what a busy machine has to kill. The grace is longer than
	// machines stand still, or the command would be dead before the loss can be told.
	r := startRun(t, server.URL(), "--ttl", "15s", "--grace", "4s", "demo", "sh", "-c", stubborn)
	r.wantGoneBefore(r.endsAfter(15*time.Second, server.Stop))
	r.wantCode(79)
	r.wantSaid("lease lost: the store has not confirmed it in time; the command gets TERM now and KILL after 4s")
}

// TestRun_HR_F8_EndsAtOnceWhenTheStoreIsFrozen: the command is dead in time, and
// whoever waits for its end is not to wait for the store.
func TestRun_HR_F8_EndsAtOnceWhenTheStoreIsFrozen(t *testing.T) {
	live.Test(t)
	t.Parallel()
	server := redistest.Start(t)
	r := startRun(t, server.URL(), "--ttl", "9s", "--grace", "2s", "demo", "sh", "-c", begin+ready+"while :; do sleep 1; done")
	r.wantGoneBefore(r.endsAfter(9*time.Second, server.Stop))
	dead := time.Now()
	r.wantCode(79)
	// To release takes five seconds.
	if took := time.Since(dead); took > 4500*time.Millisecond {
		live.Late(t, "run ended %v after its command", took)
	}
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

func TestRun_C3_BrokenLockEndsStubbornGroupAfterGrace(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	r := startRun(t, url, "--ttl", "9s", "--grace", "300ms", "demo", "sh", "-c", stubborn)
	r.deadline()
	breakLock(t, url, "maintenance")
	r.wantGoneBefore(time.Now().Add(bound))
	r.wantCode(79)
	r.wantSaid("lease broken by force: maintenance; the command gets TERM now and KILL after 300ms")
}

func TestRun_C3_OnLostIgnoreLetsTheCommandFinish(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	r := startRun(t, url, "--ttl", "9s", "--on-lost=ignore", "demo", "sh", "-c", begin+ready+"read line; echo finished")
	r.deadline()
	breakLock(t, url, "")
	r.awaitSaid("the command runs on unprotected")
	r.stdin.Close()
	if got := r.line(); got != "finished" {
		t.Errorf("read %q", got)
	}
	r.wantCode(79)
}

func TestRun_C4_KilledWrapperTakesTheCommandAlongAndFreesTheLock(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	r := startRun(t, url, "--ttl", "8s", "demo", "sh", "-c", stubborn)
	deadline := r.deadline()
	r.signal(syscall.SIGKILL)
	r.wantGoneBefore(deadline)
	client := newClient(t, url)
	if _, err := client.Mutex("demo").TryLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
		t.Errorf("before the end of the lease: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	lease, err := client.Mutex("demo").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if early := time.Until(deadline); early > 0 {
		t.Errorf("free %v before the end of the lease", early)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
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

func TestRun_RenewedLeaseLetsTheCommandOutliveTheTTL(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	// A renewal may be late by five seconds before TERM is due.
	r := startRun(t, url, "--ttl", "9s", "--grace", "100ms", "demo", "sh", "-c", begin+ready+"sleep 11; exit 4")
	r.wantGoneBefore(time.Now().Add(bound))
	r.wantCode(4)
}

func TestRun_KeepsTheLockUntilTheLastDescendantIsGone(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	leave := filepath.Join(t.TempDir(), "leave")
	patient := `trap "" TERM; (setsid sh -c 'until test -e "$0"; do sleep 0.05; done' "$0" &); `
	r := startRun(t, url, "--ttl", "5m", "--grace", "90s", "demo", "sh", "-c", begin+patient+ready, leave)
	r.deadline() // the command itself ends here
	if _, err := newClient(t, url).Mutex("demo").TryLock(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
		t.Errorf("while a daemon of the command lives: %v", err)
	}
	if err := os.WriteFile(leave, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantGoneBefore(time.Now().Add(bound))
	r.wantCode(0)
	if _, err := newClient(t, url).Mutex("demo").TryLock(t.Context()); err != nil {
		t.Errorf("after the last descendant: %v", err)
	}
}

func TestRun_UnconfirmedReleaseIsTold(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for name, want := range map[string]struct {
		script string
		code   int
	}{
		"80 if the command succeeded":   {"exit 0", 80},
		"its own code if it had failed": {"exit 6", 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := startRun(t, server.URL(), "demo", "sh", "-c", begin+ready+"read line; "+want.script)
			r.deadline()
			server.Stop()
			r.stdin.Close()
			r.wantCode(want.code)
			r.wantSaid(`lock "demo": release: outcome unknown`)
		})
	}
}

// A lock that is being released would stay for its TTL if the process died of a signal.
// Only a second one is meant to end it.
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
	time.AfterFunc(200*time.Millisecond, server.Cont) // the signal came long before the answer
	r.wantCode(6)
	if _, err := newClient(t, server.URL()).Mutex("demo").TryLock(t.Context()); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

func newClient(t *testing.T, url string) *leasehold.Client {
	t.Helper()
	d, err := stores.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := leasehold.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func breakLock(t *testing.T, url, reason string) {
	t.Helper()
	d, err := stores.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := d.(driver.Inspector).Inspect(t.Context(), "demo")
	if err != nil || len(s.Holders) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if reply, err := d.(driver.Breaker).Break(t.Context(), "demo", s.Holders[0].ID, reason); err != nil || reply.State != driver.Released {
		t.Fatalf("%+v, %v", reply, err)
	}
}

// running is a `leasehold run`.
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

// startRunSaying is startRun with another standard error, if it is not nil.
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
		_ = os.WriteFile(name, nil, 0) // somebody has to open it
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

// bound keeps reads of the pipe from waiting for ever.
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

// endsAfter does what keeps the lease from being renewed, and returns when it ends: as the
// command was told, or, on a machine so busy that a renewal may have been meanwhile, ttl
// from now at the latest.
func (r *running) endsAfter(ttl time.Duration, stop func()) time.Time {
	r.t.Helper()
	deadline := r.deadline()
	stop()
	if time.Until(deadline) > ttl*2/3 {
		return deadline
	}
	return time.Now().Add(ttl)
}

// wantGoneBefore waits until nothing of the command is left, which has to be before the
// deadline. A machine that stands still then kills nothing, hence [live.Late].
func (r *running) wantGoneBefore(deadline time.Time) {
	r.t.Helper()
	r.bound()
	if _, err := io.Copy(io.Discard, r.lines); err != nil {
		r.t.Fatalf("something of the command is left: %v", err)
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
