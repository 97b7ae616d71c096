package mysqldriver

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/play"
)

// TestHistory_FaultsNeverMakeTwoHoldersOrALesserToken lets clients use one lock while their
// connections are cut, and the server is killed and stopped.
func TestHistory_FaultsNeverMakeTwoHoldersOrALesserToken(t *testing.T) {
	live.Test(t)
	server := mysqltest.Start(t, "--innodb-flush-log-at-trx-commit=1")
	noError(t, warm(t, openURL(t, server.URL()+"create=true")).Close())
	proxy := server.Proxy(t)
	var stores []driver.Driver
	for range 6 {
		stores = append(stores, openURL(t, proxy.URL()+"timeout=500ms&poll=5ms"))
	}
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	play.Faults(t, 2*time.Second, stores, nil, rounds,
		play.Fault{Name: "cut", Do: func(*play.Locks) { proxy.CutAll() }},
		play.Fault{Name: "cut after a write", Do: func(*play.Locks) { <-proxy.CutAfter(update).Fired() }},
		play.Fault{Name: "kill", Do: func(*play.Locks) {
			server.Kill(t)
			server.Restart(t)
		}},
		play.Fault{Name: "cut before a write", Do: func(*play.Locks) { <-proxy.CutBefore(update).Fired() }},
		play.Fault{Name: "stop", Do: func(*play.Locks) {
			server.Stop(t)
			time.Sleep(700 * time.Millisecond) // the length of the fault: more than the timeout of a call
			server.Cont()
		}},
	)
}

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote updates records through a proxy that cuts
// connections.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	_, proxy := newStoreBehind(t)
	var tables []roomdriver.Table
	for range 6 {
		tables = append(tables, openURL(t, proxy.URL()).table)
	}
	c := play.StartChain(t, tables...)
	for n := 1; n <= 10; n++ {
		c.Await(10*n, 0)
		<-proxy.CutAfter(update).Fired()
		<-proxy.CutBefore(update).Fired()
	}
	c.Await(120, 10)
	c.Judge()
}
