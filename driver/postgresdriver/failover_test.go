//go:build linux

package postgresdriver

import (
	"errors"
	"net/url"
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
	if _, err := d.Acquire(t.Context(), mutex("k", "before")); err != nil {
		t.Fatal(err)
	}
	replica := primary.Standby(t)
	exec(t, admin(t, replica.URL()), `SELECT pg_wal_replay_pause()`)
	if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "before"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Acquire(t.Context(), mutex("k", "a")); err != nil {
		t.Fatal(err)
	}
	behind := openURL(t, replica.URL())
	ref := driver.Ref{Key: "k", ID: "a", TTL: time.Minute}
	for what, ask := range map[string]func() (any, error){
		"renewal": func() (reply any, err error) {
			behind.Renew(t.Context(), []driver.Ref{ref}, func(_ int, got driver.Reply, failed error) { reply, err = got, failed })
			return reply, err
		},
		"release": func() (any, error) { return behind.Release(t.Context(), ref) },
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
	host := func(s *postgrestest.Server) string {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	both := strings.Replace(primary.URL(), host(primary), host(primary)+","+host(replica), 1) + "&target_session_attrs=read-write&create=true"
	d := warm(t, openURL(t, both))
	sub, err := d.Watch(func(driver.Hint) {})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	eventually(t, func() bool { return sub.Address() != "" })
	before, err := d.Acquire(t.Context(), mutex("k", "a"))
	if err != nil || before.State != driver.Granted {
		t.Fatalf("%+v, %v", before, err)
	}
	if f := findings(t, d)["replication"]; f.Severity != driver.Good {
		t.Errorf("%+v", f)
	}
	primary.Kill(t)
	eventually(t, func() bool { return sub.Address() == "" })
	replica.Promote(t)
	eventually(t, func() bool { return sub.Address() != "" })
	var reply driver.Reply
	eventually(t, func() bool { // a connection to the old primary may have to be noticed
		reply, err = d.Acquire(t.Context(), mutex("k", "b"))
		return err == nil
	})
	if reply.State != driver.Busy || reply.Holders[0].ID != "a" || reply.Holders[0].Token != before.Token {
		t.Errorf("%+v", reply)
	}
	eventually(t, func() bool {
		d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: time.Minute}}, func(_ int, got driver.Reply, failed error) {
			reply, err = got, failed
		})
		return err == nil
	})
	if reply.State != driver.Granted {
		t.Errorf("%+v", reply)
	}
	if _, err := d.Release(t.Context(), driver.Ref{Key: "k", ID: "a"}); err != nil {
		t.Fatal(err)
	}
	after, err := d.Acquire(t.Context(), mutex("k", "b"))
	if err != nil || after.State != driver.Granted || after.Token <= before.Token {
		t.Errorf("%+v, %v", after, err)
	}
}
