package redistest

import (
	"fmt"
	"strconv"
	"testing"
)

// PrimaryName is the name by which sentinels know the primary.
const PrimaryName = "primary"

// Sentinel is a primary with one replica, watched by one sentinel that may
// fail over on its own.
type Sentinel struct {
	Primary, Replica *Server
	// Sentinel's client speaks to the sentinel itself.
	Sentinel *Server
}

// StartSentinel starts the three servers and waits until the sentinel knows
// the replica and the replica is in step. The sentinel takes the primary for
// dead after half a second without an answer.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	s := &Sentinel{Primary: Start(tb)}
	s.Replica = StartReplica(tb, s.Primary)
	s.Sentinel = start(tb, sentinelConfig(s.Primary), []string{"--sentinel"})
	known := func() bool {
		return s.Sentinel.Info(tb, "sentinel")["master0"] == s.wanted()
	}
	if !eventually(patience, known) {
		tb.Fatalf("redistest: sentinel does not know the replica after %v", patience)
	}
	return s
}

func sentinelConfig(primary *Server) string {
	return fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 1
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 3000
`, PrimaryName, primary.Port())
}

// wanted is how the sentinel describes the primary when all is well.
func (s *Sentinel) wanted() string {
	return fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=1", PrimaryName, s.Primary.Addr())
}

// StartReplica starts a replica of a server and waits until it is in step.
func StartReplica(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	replica := Start(tb, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port()))
	awaitReplica(tb, replica)
	return replica
}

func awaitReplica(tb testing.TB, replica *Server) {
	tb.Helper()
	inStep := func() bool { return replica.Info(tb, "replication")["master_link_status"] == "up" }
	if !eventually(patience, inStep) {
		tb.Fatalf("redistest: replica not in step after %v", patience)
	}
}
