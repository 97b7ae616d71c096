package costs_test

import (
	"context"
	"math"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// TestAllocations_OfAFreePair counts the allocations of a lock and an unlock, including the
// store's goroutines. The bounds are measured: lower a bound when the code gets better, and raise
// it only with a reason. Each call to a directory checks whether another process has replaced its
// clock, which costs two allocations.
func TestAllocations_OfAFreePair(t *testing.T) {
	skip.Racing(t, "the race detector allocates as well")
	server := redistest.Start(t)
	for _, row := range []struct {
		name string
		most float64
		open func(t *testing.T) (driver.Driver, error)
	}{
		{"memory", 10, func(*testing.T) (driver.Driver, error) { return memdriver.New(), nil }},
		{"directory", 62, func(t *testing.T) (driver.Driver, error) { return filedriver.Open(t.TempDir()) }},
		{"go-redis", 15, func(t *testing.T) (driver.Driver, error) { return redisClients["go-redis"](t, server) }},
		{"rueidis", 7, func(t *testing.T) (driver.Driver, error) { return redisClients["rueidis"](t, server) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := row.open(t)
			m := newClient(t, d, err).Mutex("k")
			allocates(t, row.most, func() { pair(t, m) })
			t.Run("context that can be cancelled", func(t *testing.T) {
				allocates(t, row.most, func() { pairIn(t.Context(), t, m) })
			})
		})
	}
}

// allocates checks how often do allocates.
func allocates(t *testing.T, most float64, do func()) {
	t.Helper()
	do()
	got := math.Inf(1)
	for range 4 { // the first grant has connections made in the background, which allocates as well
		got = min(got, testing.AllocsPerRun(500, do))
	}
	t.Logf("%v allocations", got)
	if got > most {
		t.Errorf("%v allocations, want %v at most", got, most)
	}
}

// pairIn locks and unlocks in a context.
func pairIn(ctx context.Context, tb testing.TB, m *leasehold.Mutex) {
	l, err := m.Lock(ctx)
	if err == nil {
		err = l.Release()
	}
	if err != nil {
		tb.Fatal(err)
	}
}
