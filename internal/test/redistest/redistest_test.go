package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/leaktest"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// orphanVariable makes the test binary start a server and wait to be killed.
const orphanVariable = "REDISTEST_ORPHAN"

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

// TestServer_EndsWithTheTestBinary kills a test binary that runs a server.
func TestServer_EndsWithTheTestBinary(t *testing.T) {
	if os.Getenv(orphanVariable) != "" {
		os.Stderr.WriteString(Start(t).Addr() + "\n")
		select {}
	}
	skip.Unless(t, runtime.GOOS == "linux", "a system that ends a child with its parent")
	binary := exec.Command(os.Args[0], "-test.run=^TestServer_EndsWithTheTestBinary$")
	binary.Env = append(os.Environ(), orphanVariable+"=1", "TMPDIR="+t.TempDir())
	out, err := binary.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := binary.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	_ = binary.Process.Kill()
	_ = binary.Wait()
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the server outlives the test binary", func() bool {
		conn, err := net.Dial("tcp", strings.TrimSpace(addr))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// Another program may take the port of a server that is down, but at another address.
func TestServer_RestartFindsItsAddressFree(t *testing.T) {
	skip.Unless(t, runtime.GOOS == "linux", "more than one loopback address")
	s := Start(t)
	s.Kill()
	if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port()))); err == nil { // or else another program has taken it
		defer l.Close()
	}
	s.Restart()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestSentinel_ARestartedServerHasTheRoleThatItHadLast(t *testing.T) {
	live.Test(t)
	s := StartSentinel(t)
	s.Primary.Kill()
	promoted := s.Promoted()
	// From here on no sentinel changes roles.
	s.Sentinel.Stop()
	promoted.Restart()
	if role := promoted.Info(t, "replication")["role"]; role != "master" {
		t.Errorf("the role of a primary that was restarted = %q, want master", role)
	}
}

// A node that does not answer for a second when it is introduced is forgotten.
func TestCluster_StandsAfterAHandshakeThatWasHeldUp(t *testing.T) {
	live.Test(t)
	c := StartCluster(t, 1)
	node := c.startNode()
	c.Nodes = append(c.Nodes, node)
	node.Stop()
	c.introduce(node)
	time.Sleep(2500 * time.Millisecond) // the first node gives up after one second
	node.Cont()
	c.await()
}
