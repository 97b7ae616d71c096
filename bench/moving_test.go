package main

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/redisdriver"
)

// While a fleet moves over, its old and new workers share one plain key: with Alongside both
// get on, in as much time as they need for thirty sections of 20 ms and eight of 200 ms each.
// A worker rests between its sections: one that asked again at once would mostly be first.
func TestAlongside_NeitherTheOldNorTheNewWorkersStarve(t *testing.T) {
	for _, row := range []struct {
		hold time.Duration
		each int64
	}{{20 * time.Millisecond, 30}, {200 * time.Millisecond, 8}} {
		t.Run(row.hold.String(), func(t *testing.T) {
			srv := redistest.Start(t)
			store, err := redisdriver.Open(srv.URL() + "?prefix=")
			if err != nil {
				t.Fatal(err)
			}
			client, err := leasehold.New(store)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			peer := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			defer peer.Close()
			old := redsync.New(goredis.NewPool(peer))

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var ours, theirs, inside atomic.Int64
			section := func(count *atomic.Int64) {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				time.Sleep(row.hold)
				inside.Add(-1)
				if count.Add(1); ours.Load() >= row.each && theirs.Load() >= row.each {
					cancel()
				}
			}
			var workers sync.WaitGroup
			for range 3 {
				workers.Go(func() {
					mutex := client.Mutex("orders/42", leasehold.WithRetry(leasehold.Alongside()))
					for ctx.Err() == nil {
						if lease, err := mutex.Lock(ctx); err == nil {
							section(&ours)
							_ = lease.Release() // at the end the context has ended it
							time.Sleep(row.hold)
						}
					}
				})
				workers.Go(func() {
					mutex := old.NewMutex("orders/42", redsync.WithExpiry(time.Minute), redsync.WithTries(math.MaxInt))
					for ctx.Err() == nil {
						if mutex.LockContext(ctx) == nil {
							section(&theirs)
							_, _ = mutex.Unlock()
							time.Sleep(row.hold)
						}
					}
				})
			}
			workers.Wait()
			t.Logf("leasehold %d, redsync %d sections", ours.Load(), theirs.Load())
			if ours.Load() < row.each || theirs.Load() < row.each {
				t.Errorf("leasehold had %d sections and redsync %d, want %d of each", ours.Load(), theirs.Load(), row.each)
			}
		})
	}
}
