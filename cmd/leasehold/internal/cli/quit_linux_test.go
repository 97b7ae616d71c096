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
	client := newClient(t, url)
	lease, err := client.Mutex("demo").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, waits := range []bool{true, false} {
		if !waits {
			if err := lease.Release(); err != nil {
				t.Fatal(err)
			}
		}
		master, slave, _ := openTerminal(t)
		p := launch(t, func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
		}, "run", "--store", url, "demo", "sh", "-c", `echo up >&2; sleep 600`)
		if waits {
			awaitLock(t, client, "demo", hasWaiters(1))
		} else {
			p.awaitSaid("up")
		}
		fmt.Fprint(master, "\x1c")
		p.wantCode(131)
		if strings.Contains(p.said.String(), "goroutine") {
			t.Errorf("printed %q, want no dump", p.said)
		}
	}
}
