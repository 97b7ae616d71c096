package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// readWriter is a process that supports a lock with two sides.
type readWriter interface {
	Read(ctx context.Context, key string) (held, error)
	Write(ctx context.Context, key string) (held, error)
}

// The sides of a read-write lock, to distinguish the turns of a crowd.
const (
	readSide = iota
	writeSide
)

// readers measures a read-write lock that is mostly read.
func readers(ctx context.Context, b *bench) *table {
	const n = 32
	t := newTable(fmt.Sprintf("Read-write lock: %d goroutines in %d clients, 90 %% read, hold nothing", n, processes),
		column{Name: "locks/s"}, column{Name: "× etcd's recipe", Digits: 1, AtLeast: 20, by: fastestEtcd},
		column{Name: "read wait p99 ms"}, column{Name: "write wait p99 ms"})
	all := b.pick(etcdPeer(), leaseholdGoRedis(), leaseholdRueidis())
	return b.compare(t, all, b.crowds, func(_ int, c contender, key string) []float64 {
		return readOnce(ctx, b, c, n, key)
	})
}

// readOnce returns locks per second, and the waits of readers and of writers.
func readOnce(ctx context.Context, b *bench, c contender, n int, key string) []float64 {
	g := b.gather(ctx, c, key, processes)
	ctx, cancel := b.limited(ctx, b.crowd)
	defer cancel()
	var wg sync.WaitGroup
	start := time.Since(g.start)
	for i := range n {
		p := g.procs[i%processes].(readWriter)
		wg.Go(func() {
			for turn := i; time.Since(g.start) < start+b.crowd; turn++ {
				side, take := readSide, p.Read
				if turn%10 == 0 {
					side, take = writeSide, p.Write
				}
				if !g.turn(ctx, side, 0, func() (held, error) { return take(ctx, key) }) {
					return
				}
			}
		})
	}
	wg.Wait()
	check(g.err)
	rate := float64(len(g.turns)) / (time.Since(g.start) - start).Seconds()
	var waits [2][]float64 // ms by side
	for _, t := range g.turns {
		waits[t.waiter] = append(waits[t.waiter], millis(t.got-t.called))
	}
	return []float64{rate, quantile(waits[readSide], 0.99), quantile(waits[writeSide], 0.99)}
}
