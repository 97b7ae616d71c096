package quorumdriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/drivertest"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/leaktest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// lacking is the set of features that a majority cannot provide: an order, limits, and all
// features that need them. Each node has its own mark.
const lacking = drivertest.Queue | drivertest.Policies | drivertest.Limits | drivertest.Resize | drivertest.Guard

func TestConformance_OverMemory(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for name, c := range map[string]struct {
			without drivertest.Feature
			opts    []quorumdriver.Option
		}{
			"fenced":   {lacking, nil},
			"unfenced": {lacking | drivertest.Tokens | drivertest.MinToken | drivertest.Raise, []quorumdriver.Option{quorumdriver.WithoutFencing()}},
		} {
			t.Run(fmt.Sprint(n, " nodes ", name), func(t *testing.T) {
				if n != 3 {
					skip.Nightly(t, "make test plays the same rows with three nodes")
				}
				var stores []*memdriver.Driver
				drivertest.Run(t, drivertest.Config{
					Without: c.without,
					Open: func(t testing.TB) driver.Driver {
						var nodes []driver.Driver
						for _, s := range stores {
							nodes = append(nodes, s.Join())
						}
						return settled{open(t, nodes, c.opts...).s}
					},
					Wrap: func(t *testing.T, row func(*testing.T)) {
						synctest.Test(t, func(t *testing.T) {
							stores = nil
							for range n {
								stores = append(stores, memdriver.New())
							}
							row(t)
						})
					},
				})
			})
		}
	}
}

// settled returns from a call only when it has reached all nodes. Otherwise a request may
// reach the last nodes after the next request of another process. This is harmless, but it
// makes the answers unpredictable.
type settled struct{ *quorumdriver.Driver }

func (s settled) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	defer s.Settle()
	for {
		reply, err := s.Driver.Acquire(ctx, req)
		if !errors.Is(err, driver.ErrNoQuorum) || ctx.Err() != nil {
			return reply, err
		}
		// On a busy machine a short lease is over before a majority answers.
	}
}

func (s settled) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	defer s.Settle()
	s.Driver.Renew(ctx, refs, each)
}

func (s settled) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	defer s.Settle()
	return s.Driver.Release(ctx, ref)
}
