package redisroom_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestTLS_ServesEveryFormOfURL(t *testing.T) {
	live.Test(t)
	single := redistest.StartTLS(t, true)
	node := redistest.StartTLS(t, true, "--cluster-enabled", "yes")
	noErr(t, node.Client().ConfigSet(background, "cluster-announce-ip", node.Host()).Err())
	noErr(t, node.Client().Do(background, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	eventually(t, "cluster", func() bool {
		return strings.Contains(node.Client().ClusterInfo(background).Val(), "cluster_state:ok")
	})
	watched := redistest.StartTLS(t, false)
	sentinel := redistest.StartSentinelTLS(t, watched)
	files := func(s *redistest.Server) string {
		c := s.Certificates()
		return url.Values{"ca": {c.CA}, "cert": {c.ClientCert}, "key": {c.ClientKey}}.Encode()
	}
	eachClient(t, func(t *testing.T, open func(string) store) {
		for form, rawURL := range map[string]string{
			"single":   single.URL() + "?" + files(single),
			"cluster":  "rediss+cluster://" + node.Addr() + "?" + files(node),
			"sentinel": "rediss+sentinel://" + sentinel.Addr() + "?master=" + redistest.PrimaryName + "&" + files(watched),
			"trusting": watched.URL() + "?skip-verify=true",
		} {
			serves(t, open(rawURL), t.Name()+form, driver.HintGranted)
		}
	})
}

// serves makes a call of each kind, and expects the hint about the next holder.
func serves(t *testing.T, d store, key string, next driver.HintKind) {
	t.Helper()
	e := listen(t, d)
	acquire(t, d, request(key, "a"), driver.Granted)
	acquire(t, d, waiting(key, "b", e.Address()), driver.Queued)
	_, err := d.Break(background, key, "a", "why")
	noErr(t, err)
	e.hear(t, driver.HintBroken, "a")
	e.hear(t, next, "b")
	renew(t, d, lease(key, "b"), driver.Granted)
	if snap, err := d.Inspect(background, key); err != nil || len(snap.Holders) != 1 {
		t.Errorf("inspect %s: %+v, %v", key, snap, err)
	}
	if _, _, err := d.List(background, "", ""); err != nil {
		t.Errorf("list: %v", err)
	}
	release(t, d, key, "b", driver.Released)
}

// TestACL_HR_F9_RightsInTheDocumentationAreEnough uses the rights in the documentation of the two
// packages.
func TestACL_HR_F9_RightsInTheDocumentationAreEnough(t *testing.T) {
	live.Test(t)
	documented := []any{"~leasehold:*", "&leasehold:*", "+@connection", "+@scripting", "+@read", "+@write", "+@pubsub", "+time"}
	server := redistest.Start(t)
	redistest.StartReplica(t, server)
	sentinel := redistest.StartSentinel(t)
	cluster := redistest.StartCluster(t, 3)
	user := func(s *redistest.Server, more ...any) {
		t.Helper()
		rules := append([]any{"ACL", "SETUSER", "locks", "on", ">pw"}, documented...)
		noErr(t, s.Client().Do(background, append(rules, more...)...).Err())
	}
	user(server)
	user(sentinel.Primary, "+role")
	for _, node := range cluster.Nodes {
		user(node, "+cluster|slots", "+cluster|shards") // rueidis asks a server of version 8 for shards, but for the first time
	}
	eachClient(t, func(t *testing.T, open func(string) store) {
		for form, rawURL := range map[string]string{
			"single":   "redis://locks:pw@" + server.Addr(),
			"replicas": "redis://locks:pw@" + server.Addr() + "?replicas=1&" + acknowledged,
			"sentinel": "redis+sentinel://locks:pw@" + sentinel.Sentinel.Addr() + "?master=" + redistest.PrimaryName,
			"cluster":  strings.Replace(clusterURL(cluster, ""), "://", "://locks:pw@", 1),
		} {
			next := driver.HintGranted
			if form == "replicas" {
				next = driver.HintAsk // until they have its lease
			}
			serves(t, open(rawURL), t.Name()+form, next)
		}
	})
}
