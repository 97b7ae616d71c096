package rueidisdriver_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestConformance(t *testing.T) {
	s, advance := redistest.StartHeld(t)
	drivertest.Run(t, drivertest.Config{
		Open:    func(t testing.TB) driver.Driver { return open(t, s.URL()) },
		Advance: advance,
	})
}

func open(t testing.TB, url string, opts ...rueidisdriver.Option) *rueidisdriver.Driver {
	t.Helper()
	d, err := rueidisdriver.Open(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// over returns a driver for the options of an application's client.
func over(t *testing.T, client rueidis.ClientOption, opts ...rueidisdriver.Option) *rueidisdriver.Driver {
	t.Helper()
	d, err := rueidisdriver.New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
