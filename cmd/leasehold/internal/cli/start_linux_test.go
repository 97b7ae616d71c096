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
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
)

// TestStart_TheGuardIsThereBeforeTheLock: a run starts its guard beside everything else, so
// that its command begins as soon as the lock is granted.
func TestStart_TheGuardIsThereBeforeTheLock(t *testing.T) {
	live.Test(t)
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(command(t), append([]string{"run", "--store", "file://" + t.TempDir()}, args...)...)
		cmd.Env = append(os.Environ(), "LEASEHOLD_STORE=")
		return cmd
	}
	holder := run("reports", "--", "sleep", "60")
	waiter := run("reports", "--", "true")
	waiter.Args[3] = holder.Args[3] // the same store
	for _, cmd := range []*exec.Cmd{holder, waiter} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		// The guard of the holder is looked for as well, so that the waiter comes second.
		awaitGuard(t, cmd)
		if cmd == holder {
			waitForHold(t, holder.Args[3])
		}
	}
}

// waitForHold returns when somebody holds the lock.
func waitForHold(t *testing.T, store string) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		out, err := exec.Command(command(t), "inspect", "--store", store, "reports").CombinedOutput()
		if err == nil && strings.Contains(string(out), "held") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody holds the lock: %s", out)
		}
	}
}

// TestRun_P1_BeginsNothingUnderALeaseThatIsOver stops a run, and the guard that was told its
// command, before the command has begun. By the time they go on another has the lock.
func TestRun_P1_BeginsNothingUnderALeaseThatIsOver(t *testing.T) {
	live.Test(t)
	t.Parallel()
	url := "file://" + t.TempDir()
	client := newClient(t, url)
	before, err := client.Mutex("demo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := new(output)
	run := exec.Command(command(t), "run", "-v", "--store", url, "--ttl", "3s", "demo", "echo", "begun")
	run.Stdout, run.Stderr, run.WaitDelay = said, said, bound
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	guard := awaitGuard(t, run)
	both := func(sig syscall.Signal) {
		for _, p := range []*os.Process{guard, run.Process} {
			if err := p.Signal(sig); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		_ = guard.Kill()
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	if err := guard.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitText(t, said, "waiting")
	if err := before.Release(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, said, "acquired")
	both(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	after, err := client.Mutex("demo").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	both(syscall.SIGCONT)
	_ = run.Wait() // the code says it
	if code := run.ProcessState.ExitCode(); code != 79 || strings.Contains(said.String(), "command runs") || strings.Contains(said.String(), "begun") {
		t.Errorf("exit code %d, said %q, want 79 and no command", code, said)
	}
	if err := after.Release(); err != nil {
		t.Error(err)
	}
}

// awaitGuard returns the guard of a process when it has come to its own name.
func awaitGuard(t *testing.T, cmd *exec.Cmd) *os.Process {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		if pid := guardOf(cmd.Process.Pid); pid != 0 {
			guard, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			return guard
		}
		if time.Now().After(end) {
			t.Fatalf("%v has no guard", cmd.Args)
		}
	}
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
