//go:build linux

package postgresdriver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// A replica that lags behind does not have a new lease yet. It refuses writes, but it would
// answer calls without a write from its old data: that the lease is gone, or that a free lock
// has a holder.
func TestFailover_AReplicaThatIsBehindAnswersNothing(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := postgrestest.Start(t, "synchronous_commit=on")
	d := warm(t, openURL(t, primary.URL()+"&create=true"))
	acquire(t, d, mutex("k", "before"), driver.Granted)
	replica := primary.Standby(t)
	exec(t, admin(t, replica.URL()), `SELECT pg_wal_replay_pause()`)
	release(t, d, "k", "before")
	acquire(t, d, mutex("k", "a"), driver.Granted)
	behind := openURL(t, replica.URL())
	for what, ask := range map[string]func() (any, error){
		"renewal": func() (any, error) { return renew(t.Context(), behind, "k") },
		"release": func() (any, error) { return behind.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}) },
		"try":     func() (any, error) { return behind.Acquire(t.Context(), mutex("k", "b")) },
		"look":    func() (any, error) { return behind.Inspect(t.Context(), "k") },
	} {
		if got, err := ask(); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "read-only replica") {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// TestFailover_ASynchronousReplicaKnowsWhatWasGranted kills a primary and promotes its
// synchronous replica. The store finds the new primary.
func TestFailover_ASynchronousReplicaKnowsWhatWasGranted(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := postgrestest.Start(t, "synchronous_commit=on", "synchronous_standby_names=*")
	replica := primary.Standby(t)
	first := hostOf(t, primary.URL())
	both := strings.Replace(primary.URL(), first, first+","+hostOf(t, replica.URL()), 1) + "&target_session_attrs=read-write&create=true"
	d := warm(t, openURL(t, both))
	sub := watch(t, d, unheard)
	before := acquire(t, d, mutex("k", "a"), driver.Granted)
	finds(t, d, "replication", driver.Good, "")
	primary.Kill(t)
	eventually(t, func() bool { return sub.Address() == "" })
	replica.Promote(t)
	eventually(t, func() bool { return sub.Address() != "" })
	var reply driver.Reply
	eventually(t, func() (ok bool) { // a connection to the old primary may have to be noticed
		var err error
		reply, err = d.Acquire(t.Context(), mutex("k", "b"))
		return err == nil
	})
	if reply.State != driver.Busy || reply.Holders[0].ID != "a" || reply.Holders[0].Token != before.Token {
		t.Errorf("%+v", reply)
	}
	var renewal driver.State
	eventually(t, func() bool {
		var err error
		renewal, err = renew(t.Context(), d, "k")
		return err == nil
	})
	if renewal != driver.Granted {
		t.Errorf("renewal: state %v", renewal)
	}
	release(t, d, "k", "a")
	if after := acquire(t, d, mutex("k", "b"), driver.Granted); after.Token <= before.Token {
		t.Errorf("token %d after %d", after.Token, before.Token)
	}
}

// A try of a renewal has half of the lease's remaining time. On a slow server each try would
// otherwise start with a new connection.
func TestRenew_ATryThatIsGivenUpCostsNoConnection(t *testing.T) {
	server := postgrestest.Start(t)
	d := warm(t, openURL(t, server.URL()+"&create=true&timeout=30s"))
	for _, key := range []string{"k", "l"} {
		acquire(t, d, mutex(key, "a"), driver.Granted)
	}
	// all renews the leases in one call, and checks the error of each.
	all := func(patience time.Duration, want error, keys ...string) {
		t.Helper()
		var refs []driver.Ref
		for _, key := range keys {
			refs = append(refs, driver.Ref{Key: key, ID: "a", TTL: time.Minute})
		}
		answers := make([]int, len(refs))
		d.Renew(within(t, patience), refs, func(i int, reply driver.Reply, err error) {
			answers[i]++
			if !errors.Is(err, want) || err == nil && reply.State != driver.Granted {
				t.Errorf("%q: %+v, %v; want %v", keys[i], reply, err, want)
			}
		})
		for i, n := range answers {
			if n != 1 {
				t.Errorf("%d answers for %q", n, keys[i])
			}
		}
	}
	all(time.Minute, nil, "k", "l")
	stay := sessionsStay(t, admin(t, server.URL()))
	server.Stop(t)
	for range 2 {
		all(50*time.Millisecond, context.DeadlineExceeded, "k")
		all(50*time.Millisecond, context.DeadlineExceeded, "k", "l")
	}
	server.Cont(t)
	all(time.Minute, nil, "k", "l")
	stay()
}
