//go:build unix && !linux

package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has no effect: only Linux supports it.
func dieWithParent(*exec.Cmd) {}

func (p *process) stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) cont() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
