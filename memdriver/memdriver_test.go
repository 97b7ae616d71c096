package memdriver_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/memdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a store as one of several processes has it: closing it leaves
// the store open for the others.
type process struct {
	*memdriver.Store
	closed bool
}

func TestConformance(t *testing.T) {
	var store *memdriver.Store
	drivertest.Run(t, drivertest.Config{
		Open: func(testing.TB) driver.Driver { return store },
		Wrap: func(t *testing.T, row func(*testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				store = memdriver.New()
				row(t)
			})
		},
	})
}
