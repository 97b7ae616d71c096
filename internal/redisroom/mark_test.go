package redisroom_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/marktest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestMark_HR_A8_IsSetOnlyWhileTheServerIsReserved(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		forget := func() { s.Client().FlushAll(t.Context()) }
		pass := func(d time.Duration) { // all keys that would expire within d expire now
			for _, key := range s.Keys(t) {
				if left := s.Client().PTTL(t.Context(), key).Val(); left > 0 && left <= d {
					s.Client().PExpire(t.Context(), key, 0)
				}
			}
		}
		marktest.Reservations(t, open(s.URL()).(driver.Marker), pass, forget)
		forget()
	})
}
