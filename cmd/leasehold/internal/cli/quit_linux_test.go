package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold-go/leasehold"
)

// quitting is a leasehold that a test sends SIGQUIT: it ends with 131, as what does
// nothing about the signal, and says nothing of goroutines.
type quitting struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *output
}

func startQuitting(t *testing.T, url string, args ...string) *quitting {
	t.Helper()
	q := &quitting{t: t, said: new(output)}
	q.cmd = &exec.Cmd{
		Path: command(t), Args: append([]string{"leasehold"}, args...), Stdout: q.said, Stderr: q.said,
		Env: append(os.Environ(), "LEASEHOLD_STORE="+url), SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, WaitDelay: bound,
	}
	t.Cleanup(func() { _ = q.cmd.Process.Kill() })
	return q
}

func (q *quitting) start() {
	q.t.Helper()
	if err := q.cmd.Start(); err != nil {
		q.t.Fatal(err)
	}
}

func (q *quitting) quit() {
	q.t.Helper()
	if err := q.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		q.t.Fatal(err)
	}
	q.want131()
}

func (q *quitting) want131() {
	q.t.Helper()
	_ = q.cmd.Wait() // the code says it
	code := q.cmd.ProcessState.ExitCode()
	if text := q.said.String(); code != 131 || strings.Contains(text, "goroutine") {
		q.t.Errorf("exit code %d, said %q; want 131 and no dump", code, text)
	}
}

// heldLock takes the lock "demo", and returns the URL of its store.
func heldLock(t *testing.T) (url string, lease *leasehold.Lease) {
	t.Helper()
	url = "file://" + t.TempDir()
	lease, err := newClient(t, url).Mutex("demo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return url, lease
}

func TestQuit_HR_F6_EndsAWaitWith131(t *testing.T) {
	t.Parallel()
	url, lease := heldLock(t)
	for _, args := range [][]string{
		{"run", "demo", "true"}, {"acquire", "demo"}, {"elect", "demo", "true"},
	} {
		q := startQuitting(t, url, args...)
		q.start()
		awaitWaiters(t, url, 1)
		q.quit()
		awaitWaiters(t, url, 0) // the place in the queue is given up
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

func TestQuit_HR_F6_EndsAVerbThatDoesNotListenWith131(t *testing.T) {
	t.Parallel()
	url, _ := heldLock(t)
	q := startQuitting(t, url, "watch", "demo")
	q.start()
	awaitText(t, q.said, "demo")
	q.quit()

	served := startQuitting(t, url, "serve", "--listen", "127.0.0.1:0")
	served.start()
	awaitText(t, served.said, "serving")
	served.quit()
}

func TestQuit_HR_F6_OfACommandIsItsEnd(t *testing.T) {
	t.Parallel()
	q := startQuitting(t, "file://"+t.TempDir(), "run", "demo", "sh", "-c", `echo up; sleep 600`)
	q.start()
	awaitText(t, q.said, "up")
	q.quit()
}

// A Ctrl-\ goes to a command in the foreground alone.
func TestQuit_HR_F6_ByTheTerminalOfACommandEndsWith131(t *testing.T) {
	t.Parallel()
	url, lease := heldLock(t)
	for _, waits := range []bool{true, false} {
		master, slave := openTerminal(t)
		q := startQuitting(t, url, "run", "demo", "sh", "-c", `echo up; sleep 600`)
		q.cmd.Stdin, q.cmd.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if !waits {
			if err := lease.Release(); err != nil {
				t.Fatal(err)
			}
		}
		q.start()
		if waits {
			awaitWaiters(t, url, 1)
		} else {
			awaitText(t, q.said, "up")
		}
		fmt.Fprint(master, "\x1c")
		q.want131()
	}
}
