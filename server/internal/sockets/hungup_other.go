//go:build !linux

package sockets

import "net"

// HungUp returns false, since this system has no such call. A lost client is noticed when its
// connection is read.
func HungUp(net.Conn) bool { return false }
