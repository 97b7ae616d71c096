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
	all := b.waitingContenders()
	total, overtook, hung := grid(all), grid(all), grid(all)
	for round := range rounds {
		for i, c := range all {
			r, err := drainOnce(ctx, b, c, n, fmt.Sprintf("drain:%d:%d", round, i))
			if err != nil {
				if err := excuse(c, err); err != nil {
					return nil, err
				}
				r = &drained{hung: n}
			}
			took, passed := millis(r.took), 100*r.overtook
			if r.hung > 0 {
				took, passed = math.NaN(), math.NaN()
			}
			total[i], overtook[i] = append(total[i], took), append(overtook[i], passed)
			hung[i] = append(hung[i], float64(r.hung))
		}
	}

	most := 1.05
	if n < 10 {
		most = 1.1
	}
	t := newTable(fmt.Sprintf("Drain: %d waiters in %d clients, hold 1 ms, served once each", n, processes),
		column{Name: "total ms", Digits: 1}, column{Name: "× limit", Digits: 2, AtMost: most},
		column{Name: "overtook, %", Digits: 0, None: true}, column{Name: fmt.Sprintf("not served in %v", b.patience), Digits: 0, None: true})
	least := best(all, total, 1)
	for i, c := range all {
		t.add(c, total[i], ratios(total[i], least), overtook[i], hung[i])
	}
	return t, nil
}

type drained struct {
	took     time.Duration
	overtook float64
	hung     int // waiters that were not served
}

func drainOnce(ctx context.Context, b *bench, c contender, n int, key string) (*drained, error) {
	g, err := b.gather(ctx, c, key, n+1)
	if err != nil {
		return nil, err
	}
	defer closeAll(g.procs)
	ctx, cancel := b.limited(ctx, time.Duration(n)*(holding+c.arrival)+b.settle)
	defer cancel()
	first, err := g.procs[0].Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() { g.wait(ctx, w) })
		time.Sleep(max(time.Millisecond, c.arrival)) // so that there is an order to keep
	}
	time.Sleep(b.settle)

	start := time.Now()
	if err := first.Release(); err != nil {
		return nil, err
	}
	wg.Wait()
	r := &drained{took: time.Since(start)}
	served, err := g.served(0, time.Since(g.start))
	if err != nil {
		return nil, err
	}
	r.hung, r.overtook = n-len(served), overtakers(served, g.turns)
	return r, nil
}
