//go:build !linux

package sockets

import "net"

// HungUp cannot tell here: a client that has gone is noticed when its connection
// is read.
func HungUp(net.Conn) bool { return false }
