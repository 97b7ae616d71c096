package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// requeue measures a lock with permanent waiters: a waiter that was served
// queues again at once.
func requeue(ctx context.Context, b *bench) (*table, error) {
	t := newTable(fmt.Sprintf("Hand-over: %d waiters in %d clients, hold 1 ms, queue again", b.waiters, processes),
		column{Name: "gap p50 ms", Digits: 2}, column{Name: "× limit", Digits: 2, AtMost: 1.15, by: least},
		column{Name: "gap p99 ms", Digits: 2},
		column{Name: "commands", Digits: 1, AtMost: 3}, column{Name: "Jain index", Digits: 2, AtLeast: 0.99},
		column{Name: "overtook, %", None: true}, column{Name: "wait p99 ms", AtMost: 150})
	return b.compare(t, b.waitingContenders(), b.crowds, func(_ int, c contender, key string) ([]float64, error) {
		r, err := requeueOnce(ctx, b, c, key)
		if err != nil {
			return nil, err
		}
		return []float64{median(r.gaps), quantile(r.gaps, 0.99), r.wire, jain(r.counts), 100 * r.overtook, quantile(r.waits, 0.99)}, nil
	})
}

type requeued struct {
	gaps, counts, waits []float64
	wire, overtook      float64
}

func requeueOnce(ctx context.Context, b *bench, c contender, key string) (*requeued, error) {
	g, err := b.gather(ctx, c, key, b.waiters)
	if err != nil {
		return nil, err
	}
	defer closeAll(g.procs)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for w := range b.waiters {
		wg.Go(func() {
			for g.wait(ctx, w) && ctx.Err() == nil {
			}
		})
	}
	time.Sleep(b.warmUp)
	var from, to time.Duration
	load, _ := b.loadOf(c, func() error {
		from = time.Since(g.start)
		time.Sleep(b.crowd)
		to = time.Since(g.start)
		return nil
	})
	cancel()
	wg.Wait()
	served, err := g.served(from, to)
	if err != nil {
		return nil, err
	}
	r := &requeued{gaps: gaps(served), counts: make([]float64, b.waiters), overtook: overtakers(served, g.turns)}
	r.wire = load.calls / float64(len(served))
	for _, t := range served {
		r.counts[t.waiter]++
	}
	for _, t := range g.turns {
		if t.got >= from {
			r.waits = append(r.waits, millis(t.got-t.called))
		}
	}
	return r, nil
}
