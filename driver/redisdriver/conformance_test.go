package redisdriver_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestConformance(t *testing.T) {
	s, advance := redistest.StartHeld(t)
	drivertest.Run(t, drivertest.Config{
		Open:    func(t testing.TB) driver.Driver { return driverOn(t, s) },
		Advance: advance,
	})
}
