package filedriver

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
)

func TestConformance(t *testing.T) {
	dir, f := t.TempDir(), newFake()
	drivertest.Run(t, drivertest.Config{
		Open: func(t testing.TB) driver.Driver {
			s, err := Open(dir, f.option())
			noError(t, err)
			return s
		},
		Advance: f.advance,
	})
}
