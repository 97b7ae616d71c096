package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
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
	s.Sentinel = start(tb, &Server{config: sentinelConfig(s.Primary)}, []string{"--sentinel"})
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

// StartReplica starts a replica of a server and waits until both find it in
// step.
func StartReplica(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	replica := Start(tb, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port()))
	awaitReplica(tb, primary, replica)
	return replica
}

func awaitReplica(tb testing.TB, primary, replica *Server) {
	tb.Helper()
	port := fmt.Sprintf("port=%d,state=online", replica.Port())
	inStep := func() bool {
		if replica.Info(tb, "replication")["master_link_status"] != "up" {
			return false
		}
		for _, value := range primary.Info(tb, "replication") {
			if strings.Contains(value, port) {
				return true
			}
		}
		return false
	}
	if !eventually(patience, inStep) {
		tb.Fatalf("redistest: replica not in step after %v", patience)
	}
}

// Replicated returns when what was written so far has reached n replicas. On a
// cluster it needs a hash tag of the server's own.
func (s *Server) Replicated(tb testing.TB, tag string, n int) {
	tb.Helper()
	// WAIT counts for what its own connection wrote, and writes keep their order.
	conn := s.Client().Conn()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := conn.Set(ctx, tag+"redistest", 1, time.Second).Err(); err != nil {
		tb.Fatalf("redistest: write to be replicated: %v", err)
	}
	// A second is also how often replicas that were connected just now report.
	for range int(patience / time.Second) {
		if conn.Wait(ctx, n, time.Second).Val() >= int64(n) {
			return
		}
	}
	tb.Fatalf("redistest: not on %d replicas after %v", n, patience)
}
