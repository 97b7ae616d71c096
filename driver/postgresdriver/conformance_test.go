package postgresdriver_test

import (
	"net/url"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// patient is a long timeout for a busy machine: the suite tests answers, not speed.
const patient = "&timeout=20s"

func TestConformance(t *testing.T) {
	skip.Nightly(t, "make test plays the same rows behind a pooler, which spares the server connections")
	server := postgrestest.Start(t)
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver { return open(t, server.URL()+"&create=true"+patient) },
	})
}

func open(t testing.TB, url string) *postgresdriver.Driver {
	t.Helper()
	d, err := postgresdriver.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The suite runs in real time: while the server's clock is held, its timeouts end no wait for
// a row lock. After the clock was moved, the driver treats its writes as uncertain.

// TestConformance_BehindAPooler plays the suite behind PgBouncer in transaction mode, with
// a database whose transactions are serializable by default.
func TestConformance_BehindAPooler(t *testing.T) {
	server := postgrestest.Start(t, "default_transaction_isolation=serializable")
	through := server.Bouncer(t) + patient + "&create=true&default_query_exec_mode=exec&listen=" + url.QueryEscape(server.URL())
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver { return open(t, through) },
	})
}
