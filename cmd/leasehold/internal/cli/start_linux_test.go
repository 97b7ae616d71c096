package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// TestStart_TheGuardIsThereBeforeTheLock: a run starts its guard in parallel with the wait, so
// that its command begins as soon as the lock is granted.
func TestStart_TheGuardIsThereBeforeTheLock(t *testing.T) {
	live.Test(t)
	url := "file://" + t.TempDir()
	for _, script := range []string{"sleep 60", "true"} {
		// The test also waits for the guard of the holder, so that the waiter is the second.
		awaitGuard(t, launch(t, nil, "run", "--store", url, "demo", "sh", "-c", script).Cmd)
		if script != "true" {
			awaitLock(t, newClient(t, url), "demo", isHeld)
		}
	}
}

// TestRun_P1_BeginsNothingUnderALeaseThatIsOver stops a run and its guard after the guard has
// received the command and before it begins. When they continue, another client has the lock.
func TestRun_P1_BeginsNothingUnderALeaseThatIsOver(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	client := newClient(t, url)
	before, err := client.Mutex("demo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := launch(t, func(cmd *exec.Cmd) { cmd.Stdout = cmd.Stderr }, "run", "-v", "--store", url, "--ttl", "3s", "demo", "echo", "begun")
	guard := awaitGuard(t, run.Cmd)
	both := func(sig syscall.Signal) {
		for _, p := range []*os.Process{guard, run.Process} {
			if err := p.Signal(sig); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { _ = guard.Kill() })
	if err := guard.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	run.awaitSaid("waiting")
	if err := before.Release(); err != nil {
		t.Fatal(err)
	}
	run.awaitSaid("acquired")
	both(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	after, err := client.Mutex("demo").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	both(syscall.SIGCONT)
	run.wantCode(79)
	if said := run.said.String(); strings.Contains(said, "command runs") || strings.Contains(said, "begun") {
		t.Errorf("printed %q, want no command", said)
	}
	if err := after.Release(); err != nil {
		t.Error(err)
	}
}

// awaitGuard waits until the guard of a process has set its name, and returns the guard.
func awaitGuard(t *testing.T, cmd *exec.Cmd) *os.Process {
	t.Helper()
	pid := 0
	eventually(t, func() bool {
		pid = guardOf(cmd.Process.Pid)
		return pid != 0
	}, "the guard of", cmd.Args)
	guard, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// guardOf returns the guard of a process, or 0.
func guardOf(pid int) int {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		stat, _ := os.ReadFile(name)
		if strings.Contains(string(stat), "(lease-guard)") && strings.Contains(string(stat), fmt.Sprintf(") S %d ", pid)) {
			guard, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return guard
		}
	}
	return 0
}
