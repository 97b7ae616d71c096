package roomdriver_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/roomdriver/tabletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds are tables of every kind.
var kinds = []struct {
	name    string
	table   func(*rows) roomdriver.Table
	without drivertest.Feature
	options []roomdriver.Option
}{
	{name: "simple", table: func(r *rows) roomdriver.Table { return r }},
	{name: "without a memory", table: func(r *rows) roomdriver.Table { return r }, options: []roomdriver.Option{roomdriver.WithMemory(0)}},
	{name: "without messages", table: func(r *rows) roomdriver.Table { return quiet{r} }, without: drivertest.Watch},
	{name: "repeating", table: func(r *rows) roomdriver.Table { return repeating{r} }},
	{name: "swapping", table: func(r *rows) roomdriver.Table {
		return struct {
			roomdriver.Table
			*roomdriver.Bus
		}{roomdriver.FromSwapper(swapping{r}), &r.Bus}
	}},
	{name: "transactions", table: func(r *rows) roomdriver.Table { return &ledger{rows: r} }},
	{name: "transactions without a memory", table: func(r *rows) roomdriver.Table { return &ledger{rows: r} }, options: []roomdriver.Option{roomdriver.WithMemory(0)}},
	{name: "counting transactions", table: func(r *rows) roomdriver.Table { return &ledger{rows: r, counts: true} }},
	{name: "exchanging", table: func(r *rows) roomdriver.Table {
		return exchanging{&ledger{rows: r, overtaken: true, counts: true}}
	}},
}

func TestTable(t *testing.T) {
	for _, kind := range kinds {
		if kind.options == nil {
			t.Run(kind.name, func(t *testing.T) {
				shared := newRows()
				tabletest.Run(t, func(testing.TB) roomdriver.Table { return kind.table(shared) })
			})
		}
	}
}

func TestConformance(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			var shared *rows
			drivertest.Run(t, drivertest.Config{
				Open: func(testing.TB) driver.Driver { return roomdriver.New(kind.table(shared), kind.options...) },
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
