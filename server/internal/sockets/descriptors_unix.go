//go:build unix

package sockets

import "syscall"

// Descriptors returns how many files and connections the process may have open, or 0 if
// unknown.
func Descriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // it is signed on some systems
}
