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

func TestBatch_ACrowdSharesRoundTripsAndLeavesWithItsContext(t *testing.T) {
	eachClient(t, func(t *testing.T, open func(url string) store) {
		s := redistest.Start(t)
		d := open(s.URL() + "?timeout=1m")
		const goroutines, pairs = 64, 20
		var crowd sync.WaitGroup
		for g := range goroutines {
			crowd.Go(func() {
				for i := range pairs {
					key, id := fmt.Sprint("k", g), fmt.Sprint("i", i)
					if reply, err := d.Acquire(t.Context(), request(key, id)); err != nil || reply.State != driver.Granted {
						t.Errorf("acquire: %+v, %v", reply, err)
						return
					}
					if reply, err := d.Release(t.Context(), driver.Ref{Key: key, ID: id}); err != nil || reply.State != driver.Released {
						t.Errorf("release: %+v, %v", reply, err)
						return
					}
				}
			})
		}
		crowd.Wait()
		calls := s.CommandStats(t)["evalsha"].Calls
		if calls < 2*goroutines*pairs {
			t.Fatalf("%v calls, want %d", calls, 2*goroutines*pairs)
		}
		// A server reads all data that has arrived on a connection at once.
		if reads := number(t, s, "stats", "total_reads_processed"); reads > calls/2 {
			t.Errorf("%d calls arrived in %d reads, want half as many at most", calls, reads)
		}

		s.Stop()
		defer s.Cont()
		for i := range goroutines / 2 {
			crowd.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				started := time.Now()
				if _, err := d.Release(ctx, driver.Ref{Key: "k", ID: fmt.Sprint("x", i)}); err == nil {
					t.Error("released by a server that is stopped")
				}
				if took := time.Since(started); took > 20*time.Second {
					t.Errorf("returned %v after its context began, want 100ms", took)
				}
			})
		}
		crowd.Wait()
	})
}
