package postgresdriver_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/internal/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
	"github.com/leasehold-go/leasehold/postgresdriver"
)

// patient lets a busy machine answer: the suite is about what is answered.
const patient = "&timeout=20s"

// TestConformance plays the suite in real time, in which the driver may guess the clock of
// the server.
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

// TestConformance_BehindAPooler plays the suite behind PgBouncer in transaction mode, with
// a database whose transactions are serializable unless they say otherwise.
func TestConformance_BehindAPooler(t *testing.T) {
	server, advance := postgrestest.StartHeld(t, "default_transaction_isolation=serializable")
	through := server.Bouncer(t) + patient + "&create=true&default_query_exec_mode=exec&listen=" + url.QueryEscape(server.URL())
	if advance == nil {
		drivertest.Run(t, drivertest.Config{Open: func(t testing.TB) driver.Driver { return open(t, through) }})
		return
	}
	var opened []driver.Driver
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			d := open(t, through)
			opened = append(opened, d)
			t.Cleanup(func() { opened = nil })
			return d
		},
		Advance: func(d time.Duration) {
			advance(d)
			for _, d := range opened {
				notice(d)
			}
		},
	})
}

// notice has a driver read the server's clock after it was moved. The driver guesses that
// clock by its own, and doubts what it has written if the two have gone on differently.
func notice(d driver.Driver) {
	_, _ = d.Release(context.Background(), driver.Ref{Key: "nothing", ID: "nobody"})
}
