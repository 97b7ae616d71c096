package mysqltest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// dieWithUs makes a program die with the test binary, even if that is killed.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// run starts a program and closes gone when it has ended. It locks its thread until then: the
// kernel sends the death signal when the thread that forked ends.
func run(cmd *exec.Cmd, gone chan<- struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed, so the error has no meaning
			close(gone)
		}
	}()
	return <-started
}
