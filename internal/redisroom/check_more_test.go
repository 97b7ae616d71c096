package redisroom_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// balance returns the address of a proxy that connects each client to a server of its own.
func balance(t *testing.T, next func() *redistest.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", next().Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				})
			}
		}
	})
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
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
	two := balance(t, func() *redistest.Server { return []*redistest.Server{a, b}[n.Add(1)%2] })
	one := balance(t, func() *redistest.Server { return a })
	eachClient(t, func(t *testing.T, open func(string) store) {
		wantFinding(t, check(t, open("redis://"+two)), driver.Unsafe, "server", "2 servers")
		wantNone(t, check(t, open("redis://"+one)), "server")
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
		move.Rest()
		move.End()
		eventually(t, "moved", func() bool { return move.Settled(c) })
		wantNone(t, check(t, d), "slots")
	})
}
