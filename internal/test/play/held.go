package play

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// Conformance plays the suite of drivers on a table whose clock stands still until the suite moves it.
// The tests of its own clock are apart.
func Conformance(t *testing.T, open func(testing.TB) Table, opts ...roomdriver.Option) {
	t.Helper()
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			return roomdriver.New(held{open(t), &now}, append(opts, roomdriver.WithSweep(0))...)
		},
		Advance: func(d time.Duration) { now.Add(d.Microseconds()) },
	})
}

// Table is a table that sends hints.
type Table interface {
	roomdriver.Table
	roomdriver.Notifier
}

// held is a table with a clock of its own.
type held struct {
	Table
	clock *atomic.Int64 // µs
}

func (h held) now() time.Time { return time.UnixMicro(h.clock.Load()) }

func (h held) Update(ctx context.Context, key string, f func([]byte, time.Time) ([]byte, error)) error {
	return h.Table.Update(ctx, key, func(record []byte, _ time.Time) ([]byte, error) { return f(record, h.now()) })
}

func (h held) List(ctx context.Context, prefix, cursor string) (roomdriver.Page, error) {
	page, err := h.Table.List(ctx, prefix, cursor)
	page.Now = h.now()
	return page, err
}
