package failover_test

import (
	"context"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// outage is what happens to a primary that is behind sentinels, and what comes
// after the failover.
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
		strike: func(t *testing.T, _ *redistest.Server, failOver func() error) {
			if err := failOver(); err != nil {
				t.Fatal(err)
			}
		},
		heal: func(*redistest.Server) {},
	},
}

// R6: behind sentinels.
func TestSentinel_R6_HoldsAndWaitsGoOn(t *testing.T) {
	t.Parallel()
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinels(t, 2, 3)
			url := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?timeout=1500ms&client-name=ours&master=" + redistest.PrimaryName
			failOver := func() error {
				return s.Sentinel.Client().Do(context.Background(), "SENTINEL", "FAILOVER", redistest.PrimaryName).Err()
			}
			both(t, func(r *rig) acts {
				l := r.queueUp(url, "k")
				return acts{func() {
					promoted := s.Promoted()
					if name == "replaced" {
						// It goes on serving for some ten seconds.
						r.eventually("left the old primary", func() bool {
							return !strings.Contains(s.Primary.Client().ClientList(context.Background()).Val(), "name=ours")
						})
					}
					r.eventually("subscribed at the new primary", func() bool {
						return len(promoted.Client().PubSubChannels(context.Background(), r.library+":*").Val()) > 0
					})
					l.pass(func() { outage.heal(s.Primary) })
				}}
			}, func() {
				s.Primary.Replicated(t, "", 2)
				outage.strike(t, s.Primary, failOver)
			})
		})
	}
}
