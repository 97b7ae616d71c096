package memdriver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/marktest"
)

func TestMark_HR_A8_IsSetOnlyWhileTheStoreIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := struct{ driver.Marker }{memdriver.New()}
		marktest.Reservations(t, &s, time.Sleep, func() { s.Marker = memdriver.New() })
	})
}
