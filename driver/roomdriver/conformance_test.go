package roomdriver_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance plays the suite on tables of every kind.
func TestConformance(t *testing.T) {
	for _, kind := range []struct {
		name    string
		table   func(*rows) roomdriver.Table
		without drivertest.Feature
	}{
		{"simple", func(r *rows) roomdriver.Table { return r }, 0},
		{"without messages", func(r *rows) roomdriver.Table { return quiet{r} }, drivertest.Watch},
		{"repeating", func(r *rows) roomdriver.Table { return repeating{r} }, 0},
		{"swapping", func(r *rows) roomdriver.Table {
			return struct {
				roomdriver.Table
				*roomdriver.Bus
			}{roomdriver.FromSwapper(swapping{r}), &r.Bus}
		}, 0},
		{"transactions", func(r *rows) roomdriver.Table { return &ledger{rows: r} }, 0},
		{"exchanging", func(r *rows) roomdriver.Table { return exchanging{&ledger{rows: r, overtaken: true}} }, 0},
	} {
		t.Run(kind.name, func(t *testing.T) {
			var shared *rows
			drivertest.Run(t, drivertest.Config{
				Open: func(testing.TB) driver.Driver { return roomdriver.New(kind.table(shared)) },
				Wrap: func(t *testing.T, row func(*testing.T)) {
					synctest.Test(t, func(t *testing.T) {
						shared = newRows()
						row(t)
					})
				},
				Without: kind.without,
			})
		})
	}
}
