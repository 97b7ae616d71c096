package redisroom_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

func check(t *testing.T, d store) driver.Report {
	t.Helper()
	c, ok := d.(driver.Checker)
	if !ok {
		t.Fatal("no checker")
	}
	report, err := c.Check(background)
	noErr(t, err)
	return report
}

// wantFinding checks that the report has a finding with the given text.
func wantFinding(t *testing.T, report driver.Report, severity driver.Severity, check, text string) {
	t.Helper()
	for _, f := range report.About(check) {
		if f.Severity == severity && strings.Contains(f.What+": "+f.Why+"; "+f.Remedy, text) {
			return
		}
	}
	t.Errorf("no finding %q of severity %v with %q in %+v", check, severity, text, report.About(check))
}

func TestCheck_HR_H8_FindsWhatMakesLocksUnsafe(t *testing.T) {
	live.Test(t)
	t.Parallel()
	good := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	evicting := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
	harmless := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	primary := redistest.Start(t, "--appendonly", "yes")
	replica := redistest.StartReplica(t, primary)
	for _, set := range []string{"maxmemory 100mb", "maxmemory-policy allkeys-lru"} {
		name, value, _ := strings.Cut(set, " ")
		noErr(t, replica.Client().ConfigSet(background, name, value).Err())
	}
	full := redistest.Start(t, "--maxmemory", "500kb")
	eachClient(t, func(t *testing.T, open func(string) store) {
		report := check(t, open(good.URL()))
		if report.Worst() > driver.Good {
			t.Errorf("a server without fault: %+v", report.Findings)
		}
		if n := report.Nodes; len(n) != 1 || n[0].Name != good.Addr() || n[0].Server == "" || n[0].Data == "" {
			t.Errorf("nodes %+v", n)
		}
		for _, row := range []struct {
			url      string
			severity driver.Severity
			check    string
			text     string
		}{
			{evicting.URL(), driver.Unsafe, "eviction", "volatile-ttl"},
			{evicting.URL(), driver.Warning, "persistence", "a restart loses"},
			{harmless.URL(), driver.Warning, "eviction", "maxmemory is not set"},
			{full.URL(), driver.Warning, "memory", "of maxmemory is used"},
			{replica.URL(), driver.Unsafe, "role", primary.Addr()},
			{primary.URL(), driver.Notice, "persistence", "everysec"},
			{primary.URL(), driver.Warning, "replicas", "replicas=1"},
			{primary.URL(), driver.Warning, "eviction", "allkeys-lru"}, // of its replica
			{primary.URL() + "?replicas=1", driver.Good, "replicas", "all 1"},
			{primary.URL() + "?replicas=2", driver.Unsafe, "replicas", "1 of 2"},
		} {
			wantFinding(t, check(t, open(row.url)), row.severity, row.check, row.text)
		}
		a, b := check(t, open(primary.URL())).Nodes, check(t, open(replica.URL())).Nodes
		if a[0].Data != b[0].Data || a[0].Server == b[0].Server {
			t.Errorf("a primary and its replica: %+v, %+v", a, b)
		}
	})
}

func TestCheck_FindsKeysThatNeverEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client()
	eachClient(t, func(t *testing.T, open func(string) store) {
		prefix := t.Name() + ":"
		d := open(s.URL() + "?prefix=" + prefix)
		acquire(t, d, request("a", "a"), driver.Granted)
		acquire(t, d, waiting("a", "b", ""), driver.Queued)
		wantFinding(t, check(t, d), driver.Good, "keys", "")
		c.Persist(background, prefix+"a")
		c.Set(background, prefix+"foreign", 1, 0)
		wantFinding(t, check(t, d), driver.Warning, "keys", `"`+prefix+"a")
		wantFinding(t, check(t, d), driver.Warning, "keys", "2 have no expiry")
		c.Del(background, prefix+"a", prefix+"foreign")

		// Without a prefix the owner of a key is unknown, except for keys of a lock.
		bare := open(s.URL() + "?prefix=")
		c.Set(background, "theirs", 1, 0)
		wantFinding(t, check(t, bare), driver.Good, "keys", "")
		acquire(t, bare, request("b", "b"), driver.Granted)
		acquire(t, bare, waiting("b", "c", ""), driver.Queued)
		for _, key := range c.Keys(background, "b\x1f*").Val() {
			c.Persist(background, key)
		}
		wantFinding(t, check(t, bare), driver.Warning, "keys", "2 have no expiry")

		c.Set(background, prefix+"\x1fc", "nonsense", 0)
		wantFinding(t, check(t, d), driver.Unsafe, "counter", "holds something else")
		c.FlushAll(background)
	})
}

func TestCheck_SaysWhatItMayNotLookAt(t *testing.T) {
	s, renamed := redistest.Start(t), redistest.Start(t, "--rename-command", "INFO", "")
	noErr(t, s.Client().Do(background, "ACL", "SETUSER", "u", "on", ">pw", "~leasehold:*", "&leasehold:*", "+@connection", "+@scripting", "+@write").Err())
	eachClient(t, func(t *testing.T, open func(string) store) {
		report := check(t, open("redis://u:pw@"+s.Addr()))
		wantFinding(t, report, driver.Warning, "rights", "+info")
		wantFinding(t, report, driver.Warning, "clock", "+time")
		wantFinding(t, report, driver.Notice, "keys", "+@read")
		wantFinding(t, check(t, open("redis://"+renamed.Addr())), driver.Warning, "rights", "+info")
	})
}

func TestCheck_OfACluster(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	eachClient(t, func(t *testing.T, open func(string) store) {
		report := check(t, open(clusterURL(c, "timeout=10s&prefix="+t.Name())))
		wantFinding(t, report, driver.Good, "cluster", "3 primaries")
		wantFinding(t, report, driver.Notice, "cluster", "no primary has a replica")
		if len(report.Nodes) != 3 || len(report.About("role")) != 3 || report.About("role")[0].Subject == "" {
			t.Errorf("%+v", report)
		}
		d := open(clusterURL(c, "timeout=2s&prefix="+t.Name()))
		c.Nodes[2].Stop()
		defer c.Nodes[2].Cont()
		eventually(t, "found not to answer", func() bool {
			report, err := d.(driver.Checker).Check(background)
			return err == nil && len(report.About("reach")) > 0
		})
		state := func(want driver.Severity) func() bool {
			return func() bool {
				report, err := d.(driver.Checker).Check(background)
				found := report.About("cluster")
				return err == nil && len(found) > 0 && found[0].Severity == want
			}
		}
		eventually(t, "missed by the others", state(driver.Unsafe))
		c.Nodes[2].Cont()
		eventually(t, "back", state(driver.Good))
	})
}

func TestCheck_OfSentinels(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open("redis+sentinel://" + s.Sentinel.Addr() + ",127.0.0.1:1?master=" + redistest.PrimaryName)
		report := check(t, d)
		wantFinding(t, report, driver.Warning, "sentinel", "there are 1 sentinels")
		wantFinding(t, report, driver.Warning, "sentinel", "does not answer")
		wantFinding(t, report, driver.Warning, "replicas", "nobody waits for them")
		if n := report.Nodes; len(n) != 1 || n[0].Name != s.Primary.Addr() {
			t.Errorf("nodes %+v, want the primary at %s", n, s.Primary.Addr())
		}
	})
}

// wantNone checks that a check has no findings above a notice.
func wantNone(t *testing.T, report driver.Report, check string) {
	t.Helper()
	for _, f := range report.About(check) {
		if f.Severity > driver.Notice {
			t.Errorf("a false alarm: %+v", f)
		}
	}
}

func TestCheck_HR_H8_BalancerThatLeadsToTwoServers(t *testing.T) {
	live.Test(t)
	a, b := redistest.Start(t), redistest.Start(t)
	var n atomic.Int64
	two := tcpproxy.Balance(t, func() string { return []string{a.Addr(), b.Addr()}[n.Add(1)%2] })
	one := tcpproxy.Start(t, a.Addr())
	eachClient(t, func(t *testing.T, open func(string) store) {
		wantFinding(t, check(t, open("redis://"+two.Addr())), driver.Unsafe, "server", "2 servers")
		wantNone(t, check(t, open("redis://"+one.Addr())), "server")
	})
}

func TestCheck_HR_H8_SentinelsOfTwoPrimaries(t *testing.T) {
	live.Test(t)
	t.Parallel()
	x, y := redistest.StartSentinel(t), redistest.StartSentinel(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		url := func(addrs ...string) string {
			return "redis+sentinel://" + strings.Join(addrs, ",") + "?master=" + redistest.PrimaryName
		}
		report := check(t, open(url(x.Sentinel.Addr(), y.Sentinel.Addr())))
		wantFinding(t, report, driver.Unsafe, "sentinel", x.Primary.Addr())
		wantFinding(t, report, driver.Unsafe, "sentinel", y.Primary.Addr())
		for _, f := range check(t, open(url(x.Sentinel.Addr()))).Findings {
			if f.Severity == driver.Unsafe {
				t.Errorf("a false alarm: %+v", f)
			}
		}
	})
}

func TestCheck_HR_H8_ReplicaThatHangsDoesNotAcknowledge(t *testing.T) {
	live.Test(t)
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	eachClient(t, func(t *testing.T, open func(string) store) {
		url := primary.URL() + "?replicas=1&prefix=" + t.Name() + ":"
		report := check(t, open(url))
		wantFinding(t, report, driver.Good, "replicas", "all 1")
		wantNone(t, report, "eviction")
		replica.Stop()
		report = check(t, open(url+"&timeout=2s")) // for as long it waits for the replica
		replica.Cont()
		wantFinding(t, report, driver.Unsafe, "replicas", "0 of 1")
		for _, f := range report.About("replicas") {
			if f.Severity == driver.Good {
				t.Errorf("good and bad at once: %+v", f)
			}
		}
		eventually(t, "in step again", func() bool {
			return strings.Contains(fmt.Sprint(primary.Info(t, "replication")), "lag=0")
		})
	})
}

func TestCheck_HR_H8_SlotThatIsHalfMovedAndPrimaryWithoutReplica(t *testing.T) {
	live.Test(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	c.AddReplicas(c.Nodes[0], c.Nodes[1])
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(clusterURL(c, "timeout=5s&prefix="))
		report := check(t, d)
		wantFinding(t, report, driver.Good, "cluster", "3 primaries")
		wantFinding(t, report, driver.Warning, "replicas", "has none")
		for _, f := range report.About("replicas") {
			if strings.Contains(f.What, "has none") && f.Subject != c.Nodes[2].Addr() {
				t.Errorf("a false alarm: %+v", f)
			}
		}
		wantNone(t, report, "slots")
		move := c.Move(t.Name())
		wantFinding(t, check(t, d), driver.Warning, "slots", "is being moved")
		noErr(t, move.Rest())
		noErr(t, move.End())
		eventually(t, "moved", func() bool { return move.Settled(c) })
		wantNone(t, check(t, d), "slots")
	})
}
