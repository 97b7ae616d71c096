package mysqldriver

import (
	"math/rand/v2"
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
	locks := play.Start(t, 2*time.Second, 5*time.Second, stores...)
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		for range 3 {
			locks.Await(2)
			locks.Fault("cut", func() {
				switch rand.IntN(3) {
				case 0:
					proxy.CutAll()
				case 1:
					<-proxy.CutAfter(update).Fired()
				case 2:
					<-proxy.CutBefore(update).Fired()
				}
			})
		}
		locks.Await(2)
		if round%2 == 0 {
			locks.Fault("kill", func() {
				server.Kill(t)
				server.Restart(t)
			})
		} else {
			locks.Fault("stop", func() {
				server.Stop(t)
				time.Sleep(700 * time.Millisecond) // longer than the timeout of a call
				server.Cont()
			})
		}
	}
	locks.Await(2)
	locks.Judge()
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
