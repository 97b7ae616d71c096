package etcddriver

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/play"
)

func TestTable(t *testing.T) {
	url := shared(t)
	tabletest.Run(t, func(t testing.TB) roomdriver.Table { return openURL(t, url).table })
}

// TestConformance plays the suite without a margin, since its leases last milliseconds. There is no
// memory, so a release removes the record.
func TestConformance(t *testing.T) {
	live.Test(t)
	url := shared(t)
	play.Conformance(t, func(t testing.TB) play.Table { return openURL(t, url).table }, roomdriver.WithMemory(0))
}
