package etcddriver

import "syscall"

// ownGroup keeps a signal to the tests from the servers, and ends these with the tests.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
