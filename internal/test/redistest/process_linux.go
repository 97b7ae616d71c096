package redistest

import (
	"os/exec"
	"syscall"

	"github.com/leasehold-go/leasehold/internal/test/daemon"
)

// dieWithParent makes the kernel kill the server when the test binary dies
// for any reason.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (p *process) stop() error { return daemon.Stop(p.pid()) }

func (p *process) cont() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
