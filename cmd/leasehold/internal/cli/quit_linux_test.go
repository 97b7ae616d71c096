package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A Ctrl-\ goes only to the command in the foreground. Leasehold ends with 131 and prints no
// goroutines, both during a wait and while its command runs.
func TestQuit_HR_F6_ByTheTerminalOfACommandEndsWith131(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	lease, err := newClient(t, url).Mutex("demo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, waits := range []bool{true, false} {
		if !waits {
			if err := lease.Release(); err != nil {
				t.Fatal(err)
			}
		}
		master, slave := openTerminal(t)
		p := launch(t, func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
		}, "run", "--store", url, "demo", "sh", "-c", `echo up >&2; sleep 600`)
		if waits {
			awaitWaiters(t, url, 1)
		} else {
			p.awaitSaid("up")
		}
		fmt.Fprint(master, "\x1c")
		_ = p.Wait() // only the code counts
		if code := p.ProcessState.ExitCode(); code != 131 || strings.Contains(p.said.String(), "goroutine") {
			t.Errorf("exit code %d, printed %q; want 131 and no dump", code, p.said)
		}
	}
}
