package natsdriver

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/play"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestTable(t *testing.T) {
	url, bucket := one()
	tabletest.Run(t, func(t testing.TB) roomdriver.Table { return openURL(t, url+"/"+bucket+"?create=true").table })
}

func TestConformance(t *testing.T) {
	live.Test(t)
	url, bucket := one()
	play.Conformance(t, func(t testing.TB) play.Table { return openURL(t, url+"/"+bucket+"?create=true").table })
}

// TestConformance_WithTheServersClock plays the suite as it is, on one server and on a cluster.
func TestConformance_WithTheServersClock(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "TestConformance plays the suite with a held clock")
	url, bucket := one()
	for name, url := range map[string]string{
		"one server": url + "/" + bucket + "?create=true", "cluster": startCluster(t).url() + "?create=true&replicas=3",
	} {
		t.Run(name, func(t *testing.T) {
			warm(t, openURL(t, url))
			drivertest.Run(t, drivertest.Config{Open: func(t testing.TB) driver.Driver { return openURL(t, url) }})
		})
	}
}
