package natsdriver

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the server if the test process dies.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
