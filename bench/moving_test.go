package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// While a fleet moves over, its old and new workers share one plain key: with Alongside both
// get on, in as much time as they need for thirty sections of 20 ms and eight of 200 ms each.
// redsync polls by its default; redislock, which has no default, polls as often on the average.
// A worker rests between its sections: one that asked again at once would mostly be first.
func TestAlongside_NeitherTheOldNorTheNewWorkersStarve(t *testing.T) {
	for _, old := range []struct {
		library contender
		poll    time.Duration
	}{{redsyncPeer(), 0}, {redislockPeer(), 150 * time.Millisecond}} {
		for _, row := range []struct {
			hold time.Duration
			each int64
		}{{20 * time.Millisecond, 30}, {200 * time.Millisecond, 8}} {
			t.Run(fmt.Sprint(old.library.name, "/", row.hold), func(t *testing.T) {
				t.Parallel() // they mostly wait
				srv := redistest.Start(t)
				peer := old.library.open(srv.Addr(), settings{ttl: time.Minute, poll: old.poll})
				defer peer.Close()
				shareOneKey(t, srv, peer, row.hold, row.each)
			})
		}
	}
}

// shareOneKey has three workers of each side take turns until both sides had enough.
func shareOneKey(t *testing.T, srv *redistest.Server, peer process, hold time.Duration, each int64) {
	const key = "orders/42"
	store, err := redisdriver.Open(srv.URL() + "?prefix=")
	if err != nil {
		t.Fatal(err)
	}
	client, err := leasehold.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ours, theirs, inside atomic.Int64
	work := func(count *atomic.Int64, lock lockFunc) {
		for ctx.Err() == nil {
			h, err := lock(ctx, key)
			if err != nil {
				continue
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d are inside", n)
			}
			time.Sleep(hold) // the work under the lock
			inside.Add(-1)
			if count.Add(1); ours.Load() >= each && theirs.Load() >= each {
				cancel()
			}
			_ = h.Release()  // at the end the context has ended it
			time.Sleep(hold) // the work without the lock
		}
	}
	var workers sync.WaitGroup
	for range 3 {
		mutex := client.Mutex(key, leasehold.WithRetry(leasehold.Alongside()))
		workers.Go(func() {
			work(&ours, func(ctx context.Context, _ string) (held, error) { return mutex.Lock(ctx) })
		})
		workers.Go(func() { work(&theirs, peer.Lock) })
	}
	workers.Wait()
	t.Logf("leasehold %d, the other %d sections", ours.Load(), theirs.Load())
	if ours.Load() < each || theirs.Load() < each {
		t.Errorf("leasehold had %d sections and the other %d, want %d of each", ours.Load(), theirs.Load(), each)
	}
}
