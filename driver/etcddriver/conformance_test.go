package etcddriver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

func TestTable(t *testing.T) {
	url := shared(t)
	tabletest.Run(t, func(t testing.TB) roomdriver.Table { return openURL(t, url).table })
}

// held is a table with a clock that stands still.
type held struct {
	*table
	now *atomic.Int64 // µs
}

func (h held) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return h.table.Update(ctx, key, func(record []byte, _ time.Time) ([]byte, error) { return f(record, time.UnixMicro(h.now.Load())) })
}

func (h held) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	record, _, err := h.table.Read(ctx, key)
	return record, time.UnixMicro(h.now.Load()), err
}

func (h held) List(ctx context.Context, prefix, cursor string) (roomdriver.Page, error) {
	page, err := h.table.List(ctx, prefix, cursor)
	page.Now = time.UnixMicro(h.now.Load())
	return page, err
}

// TestConformance plays the suite with the clock held and without a margin, since its leases last
// milliseconds. There is no memory, so a release removes the record. The tests of the clock are apart.
func TestConformance(t *testing.T) {
	live.Test(t)
	url := shared(t)
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			return roomdriver.New(held{openURL(t, url).table, &now}, roomdriver.WithMemory(0), roomdriver.WithSweep(0))
		},
		Advance: func(d time.Duration) { now.Add(d.Microseconds()) },
	})
}
