package costs_test

import (
	"context"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// TestAllocations_OfAFreePair counts what a lock and an unlock allocate, the
// store's goroutines included. A bound is what was measured: lower it when
// the code gets better, and raise it only with a reason. In a context that can be
// cancelled the call and the lease follow it. Each call to a directory looks whether another
// process has made its clock anew, which is two of them.
func TestAllocations_OfAFreePair(t *testing.T) {
	skip.Racing(t, "the race detector allocates as well")
	server := redistest.Start(t)
	for _, row := range []struct {
		name              string
		most, cancellable float64
		open              func(t *testing.T) (driver.Driver, error)
	}{
		{"memory", 10, 13, func(*testing.T) (driver.Driver, error) { return memdriver.New(), nil }},
		{"directory", 66, 69, func(t *testing.T) (driver.Driver, error) { return filedriver.Open(t.TempDir()) }},
		{"go-redis", 15, 18, func(t *testing.T) (driver.Driver, error) { return redisClients["go-redis"](t, server) }},
		{"rueidis", 7, 10, func(t *testing.T) (driver.Driver, error) { return redisClients["rueidis"](t, server) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := row.open(t)
			m := newClient(t, d, err).Mutex("k")
			allocates(t, row.most, func() { pair(t, m) })
			t.Run("context that can be cancelled", func(t *testing.T) {
				allocates(t, row.cancellable, func() { pairIn(t.Context(), t, m) })
			})
		})
	}
}

// TestAllocations_OfABareClient counts what a Redis client allocates by itself for two
// scripts with as many words as those of a free pair: the library cannot allocate less.
func TestAllocations_OfABareClient(t *testing.T) {
	skip.Racing(t, "the race detector allocates as well")
	server := redistest.Start(t)
	lock, unlock := "return 1000000", "return 1"
	ctx := context.Background()
	shas := make([]string, 2)
	for i, text := range []string{lock, unlock} {
		var err error
		if shas[i], err = server.Client().ScriptLoad(ctx, text).Result(); err != nil {
			t.Fatal(err)
		}
	}
	pair := [][]string{
		{"EVALSHA", shas[0], "3", "{k}h", "{k}r", "{k}z", "value", "30000", "9007199254740992"},
		{"EVALSHA", shas[1], "1", "{k}h", "id"},
	}

	t.Run("go-redis", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		args := make([][]any, len(pair))
		for i, words := range pair {
			for j := range words {
				args[i] = append(args[i], &words[j])
			}
		}
		allocates(t, 9, func() {
			for _, words := range args {
				if err := client.Do(ctx, words...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("rueidis", func(t *testing.T) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		allocates(t, 0, func() {
			for _, words := range pair {
				if err := client.Do(ctx, client.B().Arbitrary(words...).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
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
