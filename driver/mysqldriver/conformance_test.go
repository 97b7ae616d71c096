package mysqldriver

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

func TestTable(t *testing.T) {
	server := mysqltest.Shared(t)
	tabletest.Run(t, func(t testing.TB) roomdriver.Table { return openURL(t, server.URL()+"create=true").table })
}

func TestConformance(t *testing.T) {
	live.Test(t)
	server := mysqltest.Shared(t)
	drivertest.Run(t, drivertest.Config{Open: func(t testing.TB) driver.Driver { return openURL(t, server.URL()+"create=true&poll=5ms") }})
}

// openURL opens a store, with a timeout that is long enough for a busy machine unless the URL has
// one.
func openURL(t testing.TB, url string) *Driver {
	t.Helper()
	if !strings.Contains(url, "timeout=") {
		url += "&timeout=20s"
	}
	d, err := Open(url)
	noError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}
