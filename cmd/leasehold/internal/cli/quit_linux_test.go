package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A Ctrl-\ goes only to the command in the foreground. Leasehold ends with 131, and prints no
// goroutines. A story sends the signal during waits.
func TestQuit_HR_F6_ByTheTerminalOfACommandEndsWith131(t *testing.T) {
	t.Parallel()
	master, slave, _ := openTerminal(t)
	p := launch(t, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, "run", "--store", "file://"+t.TempDir(), "demo", "sh", "-c", `echo up >&2; sleep 600`)
	p.awaitSaid("up")
	fmt.Fprint(master, "\x1c")
	p.wantCode(131)
	if strings.Contains(p.said.String(), "goroutine") {
		t.Errorf("printed %q, want no dump", p.said)
	}
}
