package redistest

import (
	"runtime"
	"testing"
)

// A port is drawn once in a process, and belongs to a block that no other process claims.
func TestListen_GivesNoPortTwice(t *testing.T) {
	drawn := make(map[int]bool)
	for range 3 * block {
		port := nextPort()
		if drawn[port] {
			t.Fatalf("port %d was drawn twice", port)
		}
		drawn[port] = true
		if port < firstPort || port >= firstPort+ports {
			t.Fatalf("port %d is out of the range", port)
		}
		if b := (port - firstPort) / block; runtime.GOOS == "linux" && claim(b) {
			t.Fatalf("port %d is of a block that was not claimed", port)
		}
	}
}

// A cluster node that is down needs its bus again when it comes back.
func TestListen_GivesNobodyTheBusOfANode(t *testing.T) {
	for port := firstPort; port < firstPort+ports; port++ {
		if bus := port + busOffset; bus < firstPort+ports || bus >= 32768 {
			t.Fatalf("the bus of port %d is %d, which somebody else may be given", port, bus)
		}
	}
}
