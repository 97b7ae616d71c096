//go:build !unix

package sockets

import "net"

// WasReset returns false, since this system has no such call. If a client died at the moment
// of its grant, the lease ends by its time to live.
func WasReset(net.Conn) bool { return false }

// Descriptors returns 0, since this system has no bound.
func Descriptors() int { return 0 }
