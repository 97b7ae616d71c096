//go:build !linux

package postgrestest

import "os/exec"

// handOver has no effect: tests are not run as root here.
func handOver(string) error { return nil }

func unprivileged(*exec.Cmd) {}

func outlive(*exec.Cmd) {}

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
