package sqlitestore_test

import (
	"path/filepath"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/examples/sqlitestore"
)

func TestConformance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks?.db")
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			d, err := sqlitestore.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
}
