//go:build !linux

package etcddriver

import "syscall"

// ownGroup keeps a signal to the tests from the servers.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
