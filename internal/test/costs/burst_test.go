package costs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// TestCommands_HR_G3_BurstOfWaitersAsksOnceEach starts thousands of waiters at one moment, in a
// client that has not waited before, so that hints have no address yet. Only the waiters that
// asked before there was an address may ask twice.
func TestCommands_HR_G3_BurstOfWaitersAsksOnceEach(t *testing.T) {
	eachRedis(t, func(t *testing.T, s *redistest.Server, open func(...leasehold.Option) *leasehold.Client) {
		n := 5000
		if testing.Short() {
			n = 2000
		}
		c := open(leasehold.WithMaxOutage(5 * time.Minute)) // the server has thousands to serve, perhaps on a busy machine
		first := lock(t, open())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiters *sync.WaitGroup
		start := time.Now()
		got := s.Calls(t, func() { waiters = queue(ctx, t, []*leasehold.Client{c}, n) })
		took := time.Since(start)
		t.Logf("%v in %v", got, took)
		// A heartbeat each 5 s is allowed for.
		if asked := got["evalsha"] + got["eval"]; float64(asked) > float64(n)*(1.25+took.Seconds()/4) {
			t.Errorf("%d waiters made %d calls in %v", n, asked, took)
		}
		cancel()
		waiters.Wait()
		noErr(t, first.Release())
		until(t, func() bool { return s.Client().Exists(context.Background(), "leasehold:k").Val() == 0 })
	})
}
