package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/examples/sqlitestore"
)

func TestConformance(t *testing.T) { conform(t) }

// Without a memory a release removes the record, so that the suite sees whether it goes.
func TestConformance_WithoutAMemory(t *testing.T) { conform(t, roomdriver.WithMemory(0)) }

func conform(t *testing.T, opts ...roomdriver.Option) {
	path := filepath.Join(t.TempDir(), "locks?.db")
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			d, err := sqlitestore.Open(t.Context(), path, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
}
