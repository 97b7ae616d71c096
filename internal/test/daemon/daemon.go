// Package daemon starts and stops the servers of tests.
package daemon

import (
	"os/exec"
	"runtime"
)

// Start starts a program, and closes gone when it has ended. It locks its thread until then: the
// death signal of a program on Linux comes when the thread that forked it ends.
func Start(cmd *exec.Cmd, gone chan<- struct{}) error {
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
