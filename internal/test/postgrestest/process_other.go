//go:build !linux

package postgrestest

import "os/exec"

// handOver has no effect: tests are not run as root here.
func handOver(string) error { return nil }

func unprivileged(*exec.Cmd) {}

func outlive(*exec.Cmd) {}
