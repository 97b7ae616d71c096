package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// requeue measures a lock with permanent waiters: a waiter that was served
// queues again at once.
func requeue(ctx context.Context, b *bench) (*table, error) {
	all := b.waitingContenders()
	var p50, p99, wire, fair, overtook, longest [][]float64
	for _, g := range []*[][]float64{&p50, &p99, &wire, &fair, &overtook, &longest} {
		*g = grid(all)
	}
	for round := range b.crowds {
		for i, c := range all {
			r, err := requeueOnce(ctx, b, c, fmt.Sprintf("requeue:%d:%d", round, i))
			if err != nil {
				if err := excuse(c, err); err != nil {
					return nil, err
				}
				r = &requeued{wire: math.NaN(), overtook: math.NaN()}
			}
			p50[i] = append(p50[i], quantile(r.gaps, 0.5))
			p99[i] = append(p99[i], quantile(r.gaps, 0.99))
			wire[i] = append(wire[i], r.wire)
			fair[i] = append(fair[i], jain(r.counts))
			overtook[i] = append(overtook[i], 100*r.overtook)
			longest[i] = append(longest[i], quantile(r.waits, 0.99))
		}
	}

	t := newTable(fmt.Sprintf("Hand-over: %d waiters in %d clients, hold 1 ms, queue again", b.waiters, processes),
		column{Name: "gap p50 ms", Digits: 2}, column{Name: "× limit", Digits: 2, AtMost: 1.15}, column{Name: "gap p99 ms", Digits: 2},
		column{Name: "commands", Digits: 1, AtMost: 3}, column{Name: "Jain index", Digits: 2, AtLeast: 0.99},
		column{Name: "overtook, %", Digits: 0, None: true}, column{Name: "wait p99 ms", Digits: 0, AtMost: 150})
	least := best(all, p50, 1)
	for i, c := range all {
		t.add(c, p50[i], ratios(p50[i], least), p99[i], wire[i], fair[i], overtook[i], longest[i])
	}
	return t, nil
}

type requeued struct {
	gaps, counts, waits []float64
	wire, overtook      float64
}

// rate is in grants per second.
func (r *requeued) rate(length time.Duration) float64 {
	sum := 0.0
	for _, n := range r.counts {
		sum += n
	}
	return sum / length.Seconds()
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
	before, err := b.load(ctx, c)
	if err != nil {
		return nil, err
	}
	from := time.Since(g.start)
	time.Sleep(b.crowd)
	to := time.Since(g.start)
	after, err := b.load(ctx, c)
	if err != nil {
		return nil, err
	}
	cancel()
	wg.Wait()

	served, err := g.served(from, to)
	if err != nil {
		return nil, err
	}
	r := &requeued{gaps: gaps(served), counts: make([]float64, b.waiters), overtook: overtakers(served, g.turns)}
	calls, _ := after.since(before, c.wire)
	r.wire = calls / float64(len(served))
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
