//go:build unix

// Package sockets asks the kernel for the state of connections that package net hides.
package sockets

import (
	"net"
	"syscall"
)

// WasReset reports whether the kernel has noted an error of a connection, such as
// a reset.
func WasReset(c net.Conn) (reset bool) {
	onDescriptor(c, func(fd int) {
		noted, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
		reset = err == nil && noted != 0
	})
	return reset
}

// onDescriptor calls f with the descriptor of a connection, if it has one.
func onDescriptor(c net.Conn, f func(fd int)) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// Descriptors returns how many files and connections the process may have open, or 0 if
// unknown.
func Descriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // it is signed on some systems
}
