// Package address has the addresses of test servers.
//
// A server that is restarted must find its address free, and while it is down no other
// server may answer at that address. So each server has an address of its own in
// 127.0.0.0/8, from a block of addresses that only this process uses. The whole range
// belongs to the loopback interface on Linux. Other systems have 127.0.0.1 alone; there
// only the port differs.
package address

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
)

// Ports are taken from a range in which no system picks the local port of an outgoing
// connection. Otherwise a client that dials a server which is down may be given that very
// port, connect to itself, and keep the server from coming back. The bus of a cluster
// node, 10000 above, stays below 32768 too, and above all ports that are drawn.
const (
	firstPort = 10000
	ports     = busOffset
	busOffset = 10000
	hosts     = 254 // of a block: 127.x.y.1 to 127.x.y.254
	attempts  = 10  // at an address that another program has taken since
)

// addresses are the addresses that this process may draw.
type addresses struct {
	block string       // the first three numbers of each host, or empty for 127.0.0.1 alone
	claim net.Listener // of the block, until the process ends

	mu   sync.Mutex
	next int // how many were drawn, plus a random number
}

// own returns the addresses of this process.
var own = sync.OnceValue(func() *addresses {
	a := &addresses{next: rand.IntN(hosts * ports)}
	if runtime.GOOS == "linux" {
		a.block, a.claim = claimBlock()
	}
	return a
})

// draw returns a host and a port. A pair repeats after more than a million draws, and
// a port after 10000 draws.
func (a *addresses) draw() (host string, port int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	return a.host(a.next % hosts), firstPort + a.next%ports
}

func (a *addresses) host(i int) string {
	if a.block == "" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("%s.%d", a.block, i+1)
}

// IPs returns every IP address that this process may draw, for certificates.
func IPs() []net.IP {
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	if a := own(); a.block != "" {
		for i := range hosts {
			ips = append(ips, net.ParseIP(a.host(i)))
		}
	}
	return ips
}

// claimBlock returns a block that no other process has claimed. The claim is the name of an
// abstract socket, which the kernel frees when the process ends. It avoids 127.0.y.z, where
// systems have services of their own.
func claimBlock() (block string, claim net.Listener) {
	for range 1000 {
		block = fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256))
		l, err := net.Listen("unix", "@leasehold-test-addresses-"+block)
		if err == nil {
			return block, l
		}
	}
	return block, nil // there are no abstract sockets, and two blocks are hardly ever the same
}

// Listen listens on a loopback address of its own. After the listener was closed, no
// outgoing connection and no other test is given that address, so it is safe to come back
// to it.
func Listen() (net.Listener, error) {
	l, _, _, err := listenSomewhere("")
	return l, err
}

// listenSomewhere listens on a new port of the host, or of a new host if that is empty.
func listenSomewhere(at string) (l net.Listener, host string, port int, err error) {
	for range attempts {
		host, port = own().draw()
		if at != "" {
			host = at
		}
		if l, err = listen(host, port); err == nil {
			return l, host, port, nil
		}
	}
	return nil, "", 0, err
}

// Free returns an address on which [Listen] could listen, for a server that does so itself. The
// port is free 10000 above too.
func Free() (host string, port int, err error) { return FreeOn("") }

// FreeOn is [Free] on a host that Free has returned, or on a new one if that is empty.
func FreeOn(at string) (host string, port int, err error) {
	l, host, port, err := listenSomewhere(at)
	if err != nil {
		return "", 0, err
	}
	defer l.Close()
	bus, err := listen(host, port+busOffset)
	if err != nil {
		return "", 0, err
	}
	return host, port, bus.Close()
}

func listen(host string, port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}
