package redisroom_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestBatch_ACrowdSharesRoundTrips(t *testing.T) { eachClient(t, crowdSharesRoundTrips) }

func crowdSharesRoundTrips(t *testing.T, open func(url string) store) {
	s := redistest.Start(t)
	d := open(s.URL())
	const goroutines, pairs = 64, 100
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range pairs {
				key, id := fmt.Sprint("k", g), fmt.Sprint("i", i)
				reply, err := d.Acquire(t.Context(), driver.Request{Key: key, ID: id, TTL: time.Minute})
				if err != nil || reply.State != driver.Granted {
					t.Errorf("acquire: %+v, %v", reply, err)
					return
				}
				reply, err = d.Release(t.Context(), driver.Ref{Key: key, ID: id})
				if err != nil || reply.State != driver.Released {
					t.Errorf("release: %+v, %v", reply, err)
					return
				}
			}
		})
	}
	wg.Wait()
	calls := s.CommandStats(t)["evalsha"].Calls
	if calls < 2*goroutines*pairs {
		t.Fatalf("%v calls, want %d", calls, 2*goroutines*pairs)
	}
	// A server reads all data that has arrived on a connection at once.
	var reads int64
	if _, err := fmt.Sscan(s.Info(t, "stats")["total_reads_processed"], &reads); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d calls in %d reads", calls, reads)
	if reads > calls/2 {
		t.Errorf("%d calls arrived in %d reads, want half as many at most", calls, reads)
	}
}

func TestBatch_WhoeverGathersLeavesWithItsContext(t *testing.T) {
	eachClient(t, gatheredLeavesWithItsContext)
}

func gatheredLeavesWithItsContext(t *testing.T, open func(url string) store) {
	s := redistest.Start(t)
	d := open(s.URL() + "?timeout=1m")
	acquire(t, d, driver.Request{Key: "k", ID: "a", TTL: time.Minute}, driver.Granted)
	s.Stop()
	defer s.Cont()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			started := time.Now()
			_, err := d.Release(ctx, driver.Ref{Key: "k", ID: fmt.Sprint("x", i)})
			if err == nil {
				t.Error("released by a server that is stopped")
			}
			if took := time.Since(started); took > 20*time.Second {
				t.Errorf("returned %v after its context began, want 100ms", took)
			}
		})
	}
	wg.Wait()
}
