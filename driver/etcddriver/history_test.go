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

// leads returns the leader.
func (c cluster) leads(t *testing.T) *member {
	t.Helper()
	client := dial(t, c.url())
	defer client.Close()
	i, _ := c.leader(t, client)
	return c[i]
}

// faults disturb the leader.
func (c cluster) faults(t *testing.T) []play.Fault {
	return []play.Fault{
		{Name: "another leader", Do: func(*play.Locks) { c.moveLeader(t) }},
		{Name: "kill of the leader", Do: func(locks *play.Locks) {
			m := c.leads(t)
			m.process.Kill()
			locks.Await(20)
			m.start(t)
		}},
		{Name: "stop of the leader", Do: func(locks *play.Locks) { // clients work with a new one meanwhile
			m := c.leads(t)
			noError(t, m.process.Stop())
			defer m.process.Cont()
			locks.Await(20)
		}},
	}
}

func TestCluster_LosesNoLockInFaults(t *testing.T) {
	live.Test(t)
	c := startCluster(t, 3)
	c.disturb(t, 1, c.faults(t)[:2]...)
}

func TestCluster_LosesNoLockInManyFaults(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "elections take minutes")
	c := startCluster(t, 3)
	c.disturb(t, 8, c.faults(t)...)
}

func (c cluster) disturb(t *testing.T, rounds int, faults ...play.Fault) {
	var stores []driver.Driver
	for range 8 {
		stores = append(stores, openURL(t, c.url()))
	}
	tables := []roomdriver.Table{openURL(t, c.url()).table, openURL(t, c.url()).table}
	play.Faults(t, 4*time.Second, stores, tables, rounds, faults...)
}
