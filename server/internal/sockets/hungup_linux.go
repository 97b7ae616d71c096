package sockets

import (
	"net"

	"golang.org/x/sys/unix"
)

// HungUp reports whether the other side has closed a connection or reset it,
// even if data that it sent before is still unread.
func HungUp(c net.Conn) (is bool) {
	const over = unix.POLLRDHUP | unix.POLLHUP | unix.POLLERR
	onDescriptor(c, func(fd int) {
		all := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(all, 0)
		is = err == nil && n > 0 && all[0].Revents&over != 0
	})
	return is
}
