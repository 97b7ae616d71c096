package costs_test

import (
	"math"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/filedriver"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/memdriver"
)

// TestAllocations_OfAFreePair counts what a lock and an unlock allocate, the
// store's goroutines included. A bound is what was measured: lower it when
// the code gets better, and raise it only with a reason.
func TestAllocations_OfAFreePair(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates as well; make test runs this without it")
	}
	server := redistest.Start(t)
	for _, row := range []struct {
		name string
		most float64
		open func(t *testing.T) (driver.Driver, error)
	}{
		{"memory", 13, func(*testing.T) (driver.Driver, error) { return memdriver.New(), nil }},
		{"directory", 65, func(t *testing.T) (driver.Driver, error) { return filedriver.Open(t.TempDir()) }},
		{"go-redis", 22, func(t *testing.T) (driver.Driver, error) { return redisClients["go-redis"](t, server) }},
		{"rueidis", 12, func(t *testing.T) (driver.Driver, error) { return redisClients["rueidis"](t, server) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := row.open(t)
			m := newClient(t, d, err).Mutex("k")
			pair(t, m)
			got := math.Inf(1)
			for range 4 { // the first grant has connections made in the background, which allocates as well
				got = min(got, testing.AllocsPerRun(500, func() { pair(t, m) }))
			}
			t.Logf("%v allocations", got)
			if got > row.most {
				t.Errorf("a free pair allocates %v times, want %v at most", got, row.most)
			}
		})
	}
}
