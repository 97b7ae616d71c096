package redistest

import (
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
)

// Ports are taken from a range in which no system picks the local port of an
// outgoing connection. Otherwise a client that dials a server which is down
// may be given that very port, connect to itself, and keep the server from
// coming back. The bus of a cluster node, 10000 above, stays below 32768 too, and above
// all ports that are drawn: while a node is down, its bus is given to nobody either.
//
// A port whose server is down for a while is not given to another test either, which a
// client of the server would take for it. So each process draws from blocks of its own,
// and draws no port twice.
const (
	firstPort = 10000
	ports     = busOffset
	block     = 100
	busOffset = 10000
)

var drawing struct {
	mu     sync.Mutex
	left   []int          // ports of the block that was claimed last
	claims []net.Listener // of blocks, until the process ends
}

// nextPort draws a port.
func nextPort() int {
	d := &drawing
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		d.left = claimBlock()
	}
	port := d.left[0]
	d.left = d.left[1:]
	return port
}

// claimBlock returns the ports of a block that no process has claimed, or of any if there is
// none. The caller holds the mu of drawing.
func claimBlock() []int {
	blocks := rand.Perm(ports / block)
	chosen := blocks[0]
	for _, b := range blocks {
		if claim(b) {
			chosen = b
			break
		}
	}
	all := make([]int, block)
	for i := range all {
		all[i] = firstPort + chosen*block + i
	}
	return all
}

// claim reports whether a block is this process's own from now on. It asks the kernel by a
// name of an abstract socket, which ends with the process. Elsewhere than on Linux there is
// none, and two processes may draw from one block.
func claim(b int) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	l, err := net.Listen("unix", "@leasehold-test-ports-"+strconv.Itoa(b))
	if err != nil {
		return false
	}
	drawing.claims = append(drawing.claims, l)
	return true
}

// Listen listens on a free loopback port to which it is safe to come back:
// after the listener was closed, no outgoing connection is given its port, and no other
// test.
func Listen() (net.Listener, error) {
	var err error
	for range attempts {
		var l net.Listener
		if l, err = listen(nextPort()); err == nil {
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
