package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// dieWithParent makes the kernel kill the server when the test binary dies
// for any reason.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stop returns when the main thread, which executes the commands, has stopped.
// After the signal alone it still runs for a moment.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stopped, err := p.stopped()
		if stopped || err != nil {
			return err
		}
	}
	return fmt.Errorf("not stopped after %v", patience)
}

// stopped reads the state that follows the command's name in parentheses.
func (p *process) stopped() (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		return false, err
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("T")), nil
}

func (p *process) cont() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
