package failover_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// outage describes the failure of a primary that is behind sentinels, and the steps after the
// failover.
type outage struct {
	strike func(t *testing.T, primary *redistest.Server, failOver func() error)
	heal   func(primary *redistest.Server)
}

var outages = map[string]outage{
	"killed": {
		strike: func(_ *testing.T, primary *redistest.Server, _ func() error) { primary.Kill() },
		heal:   func(*redistest.Server) {},
	},
	"hangs": {
		strike: func(_ *testing.T, primary *redistest.Server, _ func() error) { primary.Stop() },
		heal:   (*redistest.Server).Cont, // it takes itself for the primary still
	},
	"replaced": {
		// Sentinels that were stopped refuse it until they have found the replicas again.
		strike: func(t *testing.T, _ *redistest.Server, failOver func() error) {
			var err error
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if err = failOver(); err == nil {
					return
				}
			}
			t.Fatal(err)
		},
		heal: func(*redistest.Server) {},
	},
}

// R6: behind sentinels.
func TestSentinel_R6_HoldsAndWaitsGoOn(t *testing.T) {
	live.Test(t)
	t.Parallel()
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behindSentinels(t, name, outage)
		})
	}
}

func behindSentinels(t *testing.T, name string, outage outage) {
	t.Helper()
	s := redistest.StartSentinels(t, 2, 3, redistest.HeldClock(t)...)
	url := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?timeout=1500ms&client-name=ours&master=" + redistest.PrimaryName
	failOver := func() error {
		return s.Sentinel.Client().Do(context.Background(), "SENTINEL", "FAILOVER", redistest.PrimaryName).Err()
	}
	both(t, func(r *rig) acts {
		l := r.queueUp(url, "k")
		return acts{func() {
			promoted := s.Promoted()
			// One that still names the old primary would lead new connections to it when it goes on.
			r.eventually("named by every sentinel", func() bool {
				return !slices.ContainsFunc(s.Sentinels, func(sentinel *redistest.Server) bool {
					named, err := sentinel.Client().Do(context.Background(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.PrimaryName).StringSlice()
					return err != nil || strings.Join(named, ":") != promoted.Addr()
				})
			})
			if name == "replaced" {
				// The old primary still serves for some ten seconds.
				r.eventually("left the old primary", func() bool {
					return !strings.Contains(s.Primary.Client().ClientList(context.Background()).Val(), "name=ours")
				})
			}
			r.eventually("subscribed at the new primary", func() bool {
				return len(promoted.Client().PubSubChannels(context.Background(), r.library+":*").Val()) > 0
			})
			l.passToFirst()
		}, l.passToSecond}
	}, func() {
		s.Primary.Replicated(t, "", 2)
		outage.strike(t, s.Primary, failOver)
	}, func() { outage.heal(s.Primary) })
}
