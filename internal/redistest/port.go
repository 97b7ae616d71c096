package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from a range in which no system picks the local port of an
// outgoing connection. Otherwise a client that dials a server which is down
// may be given that very port, connect to itself, and keep the server from
// coming back. The bus of a cluster node, 10000 above, stays below 32768 too.
const (
	firstPort = 10000
	ports     = 12000
	busOffset = 10000
)

// Listen listens on a free loopback port to which it is safe to come back:
// after the listener was closed, no outgoing connection is given its port.
func Listen() (net.Listener, error) {
	var err error
	for range attempts {
		var l net.Listener
		if l, err = listen(firstPort + rand.IntN(ports)); err == nil {
			return l, nil
		}
	}
	return nil, err
}

// freePort returns a port that is free now, and is free 10000 above.
func freePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	bus, err := listen(port + busOffset)
	if err != nil {
		return 0, err
	}
	return port, bus.Close()
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
