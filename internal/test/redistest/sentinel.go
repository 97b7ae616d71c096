package redistest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// PrimaryName is the primary's name in the sentinels' configuration.
const PrimaryName = "primary"

// Sentinel is a primary with replicas, watched by sentinels that may fail over.
type Sentinel struct {
	Primary *Server
	// Replica is the first of Replicas.
	Replica  *Server
	Replicas []*Server
	// Sentinel is the first of Sentinels. Clients connect to sentinels, and not
	// to the primary.
	Sentinel  *Server
	Sentinels []*Server

	tb testing.TB
}

// StartSentinel starts a primary, a replica and a sentinel that may fail over on
// its own, as StartSentinels does.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	return StartSentinels(tb, 1, 1)
}

// StartSentinels starts a primary with replicas, and sentinels that
// fail over by majority. It waits until every sentinel has found all sentinels and all
// replicas, and the replicas are in step. The primary counts as dead
// after half a second without an answer. The sentinels never pause (tilt mode) after the
// machine stood still. A server that is restarted has the role that a sentinel gave it last.
// The primary and the replicas have the variables env, for example from [NewClock].
func StartSentinels(tb testing.TB, replicas, sentinels int, env ...string) *Sentinel {
	tb.Helper()
	s := &Sentinel{Primary: startWatched(tb, "", env), tb: tb}
	for range replicas {
		replica := startWatched(tb, fmt.Sprintf("replicaof %s %d\n", s.Primary.Host(), s.Primary.Port()), env)
		awaitReplica(tb, s.Primary, replica)
		s.Replicas = append(s.Replicas, replica)
	}
	config := sentinelConfig(s.Primary, sentinels/2+1)
	for range sentinels {
		s.Sentinels = append(s.Sentinels, startTiltless(tb, &Server{config: config}))
	}
	s.Replica, s.Sentinel = s.Replicas[0], s.Sentinels[0]
	wanted := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=%d,sentinels=%d", PrimaryName, s.Primary.Addr(), replicas, sentinels)
	for _, sentinel := range s.Sentinels {
		await(tb, "a sentinel does not know all sentinels and replicas", func() bool {
			return sentinel.Info(tb, "sentinel")["master0"] == wanted
		})
	}
	return s
}

// startWatched starts a server with its role in its configuration file. A sentinel that
// changes the role makes the server rewrite that file (CONFIG REWRITE).
// With the role in the arguments, a former replica would be a replica again after a restart,
// and two servers could follow each other forever.
func startWatched(tb testing.TB, role string, env []string) *Server {
	tb.Helper()
	return start(tb, &Server{config: "# kept by the server\n" + role, env: env}, slices.Clone(defaults))
}

// startTiltless starts a sentinel that has no tilt mode. In that mode a sentinel, if it
// did not run for two seconds, observes for half a minute and does not fail over. A busy
// machine is enough for that, and the tests would wait for longer than a ticket lives.
func startTiltless(tb testing.TB, s *Server, args ...string) *Server {
	tb.Helper()
	start(tb, s, append([]string{"--sentinel"}, args...))
	if err := s.admin("SENTINEL", "DEBUG", "tilt-trigger", time.Hour.Milliseconds(), "tilt-period", 1); err != nil {
		tb.Fatalf("redistest: switch the tilt mode off: %v", err)
	}
	return s
}

// sentinelConfig returns the configuration of a sentinel that fails over when quorum
// sentinels agree.
func sentinelConfig(primary *Server, quorum int) string {
	return fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]d %[4]d
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 3000
`, PrimaryName, primary.Host(), primary.Port(), quorum)
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	return addrs
}

// Promoted waits until a replica has become the primary, and returns it.
func (s *Sentinel) Promoted() *Server {
	s.tb.Helper()
	i := -1
	await(s.tb, "no replica was promoted", func() bool {
		i = slices.IndexFunc(s.Replicas, func(r *Server) bool { return r.Info(s.tb, "replication")["role"] == "master" })
		return i >= 0
	})
	return s.Replicas[i]
}

// StartReplica starts a replica of a server and waits until both find it in
// step.
func StartReplica(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	replica := Start(tb, "--replicaof", primary.Host()+" "+strconv.Itoa(primary.Port()))
	awaitReplica(tb, primary, replica)
	return replica
}

func awaitReplica(tb testing.TB, primary, replica *Server) {
	tb.Helper()
	port := fmt.Sprintf("port=%d,state=online", replica.Port())
	await(tb, "replica not in step", func() bool {
		online := slices.ContainsFunc(slices.Collect(maps.Values(primary.Info(tb, "replication"))), func(value string) bool {
			return strings.Contains(value, port)
		})
		return online && replica.Info(tb, "replication")["master_link_status"] == "up"
	})
}

// Replicated returns when all writes so far have reached n replicas. On a
// cluster it needs a hash tag of the server's own.
func (s *Server) Replicated(tb testing.TB, tag string, n int) {
	tb.Helper()
	// WAIT counts writes of its own connection only, and replication keeps the order of writes.
	conn := s.Client().Conn()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := conn.Set(ctx, tag+"redistest", 1, time.Second).Err(); err != nil {
		tb.Fatalf("redistest: write to be replicated: %v", err)
	}
	// Replicas that have just connected also report only once a second.
	for range int(patience / time.Second) {
		if conn.Wait(ctx, n, time.Second).Val() >= int64(n) {
			return
		}
	}
	tb.Fatalf("redistest: not on %d replicas after %v", n, patience)
}
