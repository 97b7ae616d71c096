package redisroom_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestTokens_HR_B1_RiseThroughTakeoversInACluster has two nodes take over from one
// another, again and again, of which the promoted one lacks the last grants, as a
// replica that lags does. The clients have connections to both before long, and no
// redirection need tell them.
func TestTokens_HR_B1_RiseThroughTakeoversInACluster(t *testing.T) {
	live.Test(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	primary := cluster.Nodes[0]
	replica := cluster.AddReplica(primary)
	stores := make(map[string]store)
	for name, open := range clients {
		d, err := open(clusterURL(cluster, "prefix="+name+":"))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		stores[name] = d
	}
	last := make(map[string]int64)
	grant := func(name string) {
		t.Helper()
		req := request("k", "lease-"+name+"-"+time.Now().Format("150405.000000000"))
		var reply driver.Reply
		eventually(t, "an answer of "+name, func() bool {
			var err error
			reply, err = stores[name].Acquire(background, req)
			return err == nil
		})
		if reply.State != driver.Granted || reply.Token <= last[name] {
			t.Errorf("%s: %+v follows token %d", name, reply, last[name])
		}
		last[name] = max(last[name], reply.Token)
		eventually(t, "a release of "+name, func() bool {
			_, err := stores[name].Release(background, driver.Ref{Key: "k", ID: req.ID})
			return err == nil
		})
	}
	for range 4 {
		for name := range stores {
			for range 20 {
				grant(name)
			}
		}
		takeOver(t, primary, replica)
		primary, replica = replica, primary
		for name := range stores {
			lag(t, primary, name+":k", last[name])
		}
		for name := range stores {
			grant(name)
		}
	}
}

// takeOver has a replica take over by command, and waits until both agree.
func takeOver(t *testing.T, primary, replica *redistest.Server) {
	t.Helper()
	eventually(t, "taken over", func() bool {
		if replica.Info(t, "replication")["role"] == "master" {
			return primary.Info(t, "replication")["master_link_status"] == "up"
		}
		_ = replica.Client().ClusterFailover(context.Background()).Err()
		return false
	})
}

// lag gives the counter of a room the value that it had some grants ago.
func lag(t *testing.T, primary *redistest.Server, room string, last int64) {
	t.Helper()
	for _, key := range primary.Keys(t) {
		if strings.HasPrefix(key, room+"\x1fr") {
			if err := primary.Client().Set(background, key, last-10, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s has no counter", room)
}
