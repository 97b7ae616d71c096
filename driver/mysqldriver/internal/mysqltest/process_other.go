//go:build !linux

package mysqltest

import "os/exec"

func dieWithUs(*exec.Cmd) {}

// run starts a program and closes gone when it has ended.
func run(cmd *exec.Cmd, gone chan<- struct{}) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait() // it is killed, so the error has no meaning
		close(gone)
	}()
	return nil
}
