package address

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// An address is drawn once in a process, and belongs to a block that no other process claims.
func TestListen_GivesNoAddressTwice(t *testing.T) {
	type address struct {
		host string
		port int
	}
	drawn := make(map[address]bool)
	for range 3 * hosts {
		var a address
		a.host, a.port = own().draw()
		if drawn[a] {
			t.Fatalf("%v was drawn twice", a)
		}
		drawn[a] = true
		if a.port < firstPort || a.port >= firstPort+ports {
			t.Fatalf("port %d is out of the range", a.port)
		}
		if ip := net.ParseIP(a.host); ip == nil || !ip.IsLoopback() || strings.HasSuffix(a.host, ".0") || strings.HasSuffix(a.host, ".255") {
			t.Fatalf("host %s is no address of the loopback interface for a server", a.host)
		}
		if runtime.GOOS == "linux" && !strings.HasPrefix(a.host, own().block+".") {
			t.Fatalf("host %s is not of the block %s", a.host, own().block)
		}
	}
}

func TestListen_NoOtherProcessClaimsTheBlock(t *testing.T) {
	skip.Unless(t, runtime.GOOS == "linux", "abstract sockets and more than one loopback address")
	if own().claim == nil {
		t.Fatal("the block is not claimed")
	}
	if l, err := net.Listen("unix", own().claim.Addr().String()); err == nil {
		l.Close()
		t.Error("the block was claimed again")
	}
	if block, claim := claimBlock(); claim == nil || block == own().block {
		t.Errorf("another claim: %s, %v", block, claim)
	} else {
		claim.Close()
	}
}
