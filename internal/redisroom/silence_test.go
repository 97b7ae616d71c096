package redisroom_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// H10: what a request may take is no measure for a ping.
func TestSubscription_HR_H10_SilenceIsNoticedSoonAlsoWithALongTimeout(t *testing.T) {
	live.Test(t)
	t.Parallel()
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL() + "?timeout=1m")
		e := listen(t, d)
		s.Stop()
		eventually(t, "noticed that the server is silent", func() bool { return e.Address() == "" })
		s.Cont()
		e.hear(t, driver.HintResync, "")
	})
}
