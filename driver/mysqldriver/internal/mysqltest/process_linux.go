package mysqltest

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes a program die with the test binary, even if that is killed.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
