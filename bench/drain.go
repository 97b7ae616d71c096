package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// drain measures the time until n waiters have been served once each.
func drain(ctx context.Context, b *bench, n, rounds int) (*table, error) {
	atMost := 1.05
	if n < 10 {
		atMost = 1.1
	}
	t := newTable(fmt.Sprintf("Drain: %d waiters in %d clients, hold 1 ms, served once each", n, processes),
		column{Name: "total ms", Digits: 1}, column{Name: "× limit", Digits: 2, AtMost: atMost, by: least},
		column{Name: "overtook, %", None: true}, column{Name: fmt.Sprintf("not served in %v", b.patience), None: true})
	return b.compare(t, b.waitingContenders(), rounds, func(_ int, c contender, key string) ([]float64, error) {
		r, err := drainOnce(ctx, b, c, n, key)
		return []float64{r.took, r.overtook, r.hung}, err
	})
}

type drained struct {
	took, overtook float64 // ms and %; NaN unless all waiters were served
	hung           float64 // waiters that were not served
}

func drainOnce(ctx context.Context, b *bench, c contender, n int, key string) (drained, error) {
	none := drained{math.NaN(), math.NaN(), float64(n)}
	g, err := b.gather(ctx, c, key, n+1)
	if err != nil {
		return none, err
	}
	defer closeAll(g.procs)
	ctx, cancel := b.limited(ctx, time.Duration(n)*(holding+c.arrival)+b.settle)
	defer cancel()
	first, err := g.procs[0].Lock(ctx, key)
	if err != nil {
		return none, err
	}
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() { g.wait(ctx, w) })
		time.Sleep(max(time.Millisecond, c.arrival)) // so that there is an order to keep
	}
	time.Sleep(b.settle)

	start := time.Now()
	if err := first.Release(); err != nil {
		return none, err
	}
	wg.Wait()
	took := millis(time.Since(start))
	served, err := g.served(0, time.Since(g.start))
	if none.hung -= float64(len(served)); err != nil || none.hung > 0 {
		return none, err
	}
	return drained{took: took, overtook: 100 * overtakers(served, g.turns)}, nil
}
