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

// patient lets a busy machine answer: the suite is about what is answered.
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

// The suite is played in real time: a server whose clock is held ends no wait for a lock by
// its timeouts, and the driver doubts what it has written by a clock that was moved.

// TestConformance_BehindAPooler plays the suite behind PgBouncer in transaction mode, with
// a database whose transactions are serializable unless they say otherwise.
func TestConformance_BehindAPooler(t *testing.T) {
	server := postgrestest.Start(t, "default_transaction_isolation=serializable")
	through := server.Bouncer(t) + patient + "&create=true&default_query_exec_mode=exec&listen=" + url.QueryEscape(server.URL())
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver { return open(t, through) },
	})
}
