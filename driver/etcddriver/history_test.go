package etcddriver

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/play"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote cuts connections before and after writes.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	t.Parallel()
	var proxies []*tcpproxy.Proxy
	var tables []roomdriver.Table
	for range 4 {
		p, d, _ := through(t)
		proxies, tables = append(proxies, p), append(tables, d.table, d.table)
	}
	c := play.StartChain(t, tables...)
	for i := range 20 {
		switch p, text := proxies[i%4], fmt.Sprint(2*(i%4), "."); i % 3 {
		case 0:
			<-p.CutBefore(text).Fired()
		case 1:
			<-p.CutAfter(text).Fired()
		default:
			p.CutAll()
		}
	}
	c.Judge()
}

// fault disturbs a cluster, and returns when it is over.
type fault struct {
	name string
	do   func(t *testing.T, c cluster, locks *play.Locks)
}

var faults = []fault{
	{"another leader", func(t *testing.T, c cluster, _ *play.Locks) { c.moveLeader(t) }},
	{"kill of the leader", func(t *testing.T, c cluster, locks *play.Locks) {
		m := c.leads(t)
		m.process.Kill()
		locks.Await(20)
		m.start(t)
	}},
	{"stop of the leader", func(t *testing.T, c cluster, locks *play.Locks) { // clients work with a new one meanwhile
		m := c.leads(t)
		noError(t, m.process.Stop())
		defer m.process.Cont()
		locks.Await(20)
	}},
}

// leads returns the leader.
func (c cluster) leads(t *testing.T) *member {
	t.Helper()
	client := dial(t, c.url())
	defer client.Close()
	i, _ := c.leader(t, client)
	return c[i]
}

// TestCluster_LosesNoLockInFaults contends for locks, and for records, in a cluster whose leader
// fails.
func TestCluster_LosesNoLockInFaults(t *testing.T) {
	live.Test(t)
	disturb(t, 1, faults[:2])
}

func TestCluster_LosesNoLockInManyFaults(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "elections take minutes")
	disturb(t, 8, faults)
}

func disturb(t *testing.T, rounds int, faults []fault) {
	c := startCluster(t, 3)
	records := play.StartChain(t, openURL(t, c.url()).table, openURL(t, c.url()).table)
	var stores []driver.Driver
	for range 8 {
		stores = append(stores, openURL(t, c.url()))
	}
	locks := play.Start(t, 4*time.Second, time.Minute, stores...)
	locks.Await(20)
	for range rounds {
		for _, f := range faults {
			locks.Fault(f.name, func() { f.do(t, c, locks) })
			locks.Await(20)
		}
	}
	locks.Judge()
	records.Judge()
}
