package postgresdriver

import (
	"net/url"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestTable(t *testing.T) {
	server := postgrestest.Shared(t)
	tabletest.Run(t, func(t testing.TB) roomdriver.Table { return openURL(t, server.URL()+"&create=true").table })
}

// The suite runs in real time: while the server's clock is held, its timeouts end no wait for
// a row lock. After the clock was moved, the driver treats its writes as uncertain.
func conforms(t *testing.T, url string) {
	drivertest.Run(t, drivertest.Config{Open: func(t testing.TB) driver.Driver { return openURL(t, url+"&create=true") }})
}

func TestConformance(t *testing.T) {
	skip.Nightly(t, "make live plays the same rows behind a pooler, which spares the server connections")
	conforms(t, postgrestest.Start(t).URL())
}

// TestConformance_BehindAPooler plays the suite behind PgBouncer in transaction mode, with
// a database whose transactions are serializable by default.
func TestConformance_BehindAPooler(t *testing.T) {
	live.Test(t)
	server := postgrestest.Start(t, "default_transaction_isolation=serializable")
	conforms(t, server.Bouncer(t)+asText+"&listen="+url.QueryEscape(server.URL()))
}
