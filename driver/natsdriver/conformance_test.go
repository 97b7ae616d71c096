package natsdriver

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestTable(t *testing.T) {
	url, bucket := one()
	tabletest.Run(t, func(t testing.TB) roomdriver.Table { return openURL(t, url+"/"+bucket+"?create=true").table })
}

// held is a bucket with a clock that stands still.
type held struct {
	*bucket
	now *atomic.Int64 // µs
}

func (h held) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return roomdriver.FromSwapper(h).Update(ctx, key, f)
}

func (h held) Load(ctx context.Context, key string) ([]byte, string, time.Time, error) {
	record, version, _, err := h.bucket.Load(ctx, key)
	revision, _, _ := strings.Cut(version, " ")
	now := time.UnixMicro(h.now.Load())
	return record, fmt.Sprint(revision, " ", now.UnixMilli()), now, err
}

func (h held) List(ctx context.Context, prefix, cursor string) (roomdriver.Page, error) {
	page, err := h.bucket.List(ctx, prefix, cursor)
	page.Now = time.UnixMicro(h.now.Load())
	return page, err
}

// TestConformance plays the suite with the clock held.
func TestConformance(t *testing.T) {
	live.Test(t)
	url, bucket := one()
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			return roomdriver.New(held{openURL(t, url+"/"+bucket+"?create=true").table, &now}, roomdriver.WithSweep(0))
		},
		Advance: func(d time.Duration) { now.Add(d.Microseconds()) },
	})
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
