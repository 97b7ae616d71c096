package main

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// oldWorker takes and gives back a lock with the library that is moved away from.
type oldWorker func(ctx context.Context) (release func(), err error)

// oldLibraries share a plain key; each has a maker of workers. redsync polls by its default;
// redislock, which has no default, polls as often on the average.
var oldLibraries = map[string]func(peer *redis.Client) func() oldWorker{
	"redsync": func(peer *redis.Client) func() oldWorker {
		old := redsync.New(goredis.NewPool(peer))
		return func() oldWorker {
			mutex := old.NewMutex("orders/42", redsync.WithExpiry(time.Minute), redsync.WithTries(math.MaxInt))
			return func(ctx context.Context) (func(), error) {
				err := mutex.LockContext(ctx)
				return func() { _, _ = mutex.Unlock() }, err
			}
		}
	},
	"redislock": func(peer *redis.Client) func() oldWorker {
		old := redislock.New(peer)
		return func() oldWorker {
			return func(ctx context.Context) (func(), error) {
				lock, err := old.Obtain(ctx, "orders/42", time.Minute, &redislock.Options{RetryStrategy: redislock.LinearBackoff(150 * time.Millisecond)})
				return func() { _ = lock.Release(context.Background()) }, err
			}
		}
	},
}

// While a fleet moves over, its old and new workers share one plain key: with Alongside both
// get on, in as much time as they need for thirty sections of 20 ms and eight of 200 ms each.
// A worker rests between its sections: one that asked again at once would mostly be first.
func TestAlongside_NeitherTheOldNorTheNewWorkersStarve(t *testing.T) {
	for name, library := range oldLibraries {
		for _, row := range []struct {
			hold time.Duration
			each int64
		}{{20 * time.Millisecond, 30}, {200 * time.Millisecond, 8}} {
			t.Run(name+"/"+row.hold.String(), func(t *testing.T) {
				t.Parallel() // they mostly wait
				shareOneKey(t, name, library, row.hold, row.each)
			})
		}
	}
}

// shareOneKey has three workers of each side take turns until both sides had enough.
func shareOneKey(t *testing.T, name string, library func(*redis.Client) func() oldWorker, hold time.Duration, each int64) {
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
	newWorker := library(peer)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ours, theirs, inside atomic.Int64
	section := func(count *atomic.Int64) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%d are inside", n)
		}
		time.Sleep(hold)
		inside.Add(-1)
		if count.Add(1); ours.Load() >= each && theirs.Load() >= each {
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
					time.Sleep(hold)
				}
			}
		})
		workers.Go(func() {
			lock := newWorker()
			for ctx.Err() == nil {
				if release, err := lock(ctx); err == nil {
					section(&theirs)
					release()
					time.Sleep(hold)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("leasehold %d, %s %d sections", ours.Load(), name, theirs.Load())
	if ours.Load() < each || theirs.Load() < each {
		t.Errorf("leasehold had %d sections and %s %d, want %d of each", ours.Load(), name, theirs.Load(), each)
	}
}
