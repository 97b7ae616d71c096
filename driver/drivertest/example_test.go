package drivertest_test

import (
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// A store on a server: every Open makes a new connection, as another process would. The
// rows run in parallel, each in a room of its own.
func ExampleRun() {
	connect := func(address string) driver.Driver { return memdriver.New() } // yours

	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		address := "127.0.0.1:6379" // of a server that the test has started
		drivertest.Run(t, drivertest.Config{
			Open: func(testing.TB) driver.Driver { return connect(address) },
		})
	}
}

// A store without sockets runs in bubbles of virtual time: each row has a store
// of its own, and a minute passes in no time.
func ExampleRun_virtualTime() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		var store *memdriver.Driver
		drivertest.Run(t, drivertest.Config{
			Open: func(testing.TB) driver.Driver { return store.Join() },
			Wrap: func(t *testing.T, row func(*testing.T)) {
				synctest.Test(t, func(t *testing.T) {
					store = memdriver.New()
					row(t)
				})
			},
		})
	}
}

// A store that has only three verbs lacks all optional features. Other stores name the
// features that they lack, for example drivertest.Policies | drivertest.Resize.
func ExampleConfig_without() {
	var table driver.Basic // yours

	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		drivertest.Run(t, drivertest.Config{
			Open:    func(testing.TB) driver.Driver { return driver.FromBasic(table) },
			Without: drivertest.BeyondBasic,
		})
	}
}
