package redistest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/test/leaktest"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// orphanVariable makes the test binary start a server and wait to be killed.
const orphanVariable = "REDISTEST_ORPHAN"

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func TestServer_EndsWithItsTest(t *testing.T) {
	var addr string
	t.Run("inner", func(t *testing.T) {
		s := Start(t)
		addr = s.Addr()
		if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	refused(t, addr)
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
	gone := func() bool {
		conn, err := net.Dial("tcp", strings.TrimSpace(addr))
		if err == nil {
			conn.Close()
		}
		return err != nil
	}
	if !eventually(patience, gone) {
		t.Fatalf("the server on %s outlives the test binary", addr)
	}
}

func TestServer_StopFreezesUntilCont(t *testing.T) {
	s := Start(t)
	s.Stop()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 50 * time.Millisecond})
	defer c.Close()
	var timeout net.Error
	if err := c.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("ping of a stopped server: %v, want a time-out", err)
	}
	s.Cont()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Fatalf("ping after it went on: %v", err)
	}
}

func TestServer_RestartKeepsPortAndForgetsData(t *testing.T) {
	s := Start(t)
	set(t, s, "k")
	addr, pid := s.Addr(), s.Pid()
	s.Restart()
	if keys := s.Keys(t); len(keys) != 0 {
		t.Errorf("keys after a restart: %q, want none", keys)
	}
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("restarted on %s as %d, want %s and another process than %d", s.Addr(), s.Pid(), addr, pid)
	}
}

// Another program may take the port of a server that is down, but at another address.
func TestServer_RestartFindsItsAddressFree(t *testing.T) {
	skip.Unless(t, runtime.GOOS == "linux", "more than one loopback address")
	s := Start(t)
	s.Kill()
	if l, err := listen("127.0.0.1", s.Port()); err == nil { // or else another program has taken it
		defer l.Close()
	}
	s.Restart()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestServer_RestartKeepsPersistedData(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	set(t, s, "k")
	s.Kill()
	refused(t, s.Addr())
	s.Restart()
	if keys := s.Keys(t); len(keys) != 1 {
		t.Errorf("keys after a restart: %q, want the key that was written", keys)
	}
}

func TestCluster_ServesAllSlotsAndFailsOver(t *testing.T) {
	live.Test(t)
	c := StartCluster(t, 3)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := c.Client().Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
	}
	owner := c.Owner("a")
	replica := c.AddReplica(owner)
	owner.Kill()
	promoted := func() bool { return replica.Info(t, "replication")["role"] == "master" }
	if !eventually(patience, promoted) {
		t.Fatal("the replica was not promoted")
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

func set(t *testing.T, s *Server, key string) {
	t.Helper()
	if err := s.Client().Set(context.Background(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
		t.Fatalf("a server still listens on %s", addr)
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
