//go:build unix

package server

import (
	"net"
	"syscall"
)

// wasReset reports whether the kernel has noted an error of a connection, such as
// a reset.
func wasReset(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	noted := 0
	err = raw.Control(func(fd uintptr) {
		noted, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	})
	return err == nil && noted != 0
}
