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
func readers(ctx context.Context, b *bench) (*table, error) {
	const n = 32
	all := b.pick([]contender{etcdPeer(), leaseholdGoRedis(), leaseholdRueidis()})
	rate, read, write := grid(all), grid(all), grid(all)
	for round := range b.crowds {
		for i, c := range all {
			r, err := readOnce(ctx, b, c, n, fmt.Sprintf("readers:%d:%d", round, i))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rate[i] = append(rate[i], r.rate)
			read[i] = append(read[i], quantile(r.waits[readSide], 0.99))
			write[i] = append(write[i], quantile(r.waits[writeSide], 0.99))
		}
	}
	t := newTable(fmt.Sprintf("Read-write lock: %d goroutines in %d clients, 90 %% read, hold nothing", n, processes),
		column{Name: "locks/s", Digits: 0}, column{Name: "× etcd's recipe", Digits: 1, AtLeast: 20},
		column{Name: "read wait p99 ms", Digits: 0}, column{Name: "write wait p99 ms", Digits: 0})
	var recipe []float64
	for i, c := range all {
		if c.client == etcdClient {
			recipe = rate[i]
		}
		t.add(c, rate[i], ratios(rate[i], recipe), read[i], write[i])
	}
	return t, nil
}

// readRun is the result of readers and writers.
type readRun struct {
	rate  float64      // locks per second
	waits [2][]float64 // ms by side
}

func readOnce(ctx context.Context, b *bench, c contender, n int, key string) (*readRun, error) {
	g, err := b.gather(ctx, c, key, processes)
	if err != nil {
		return nil, err
	}
	defer closeAll(g.procs)
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
	r := &readRun{rate: float64(len(g.turns)) / (time.Since(g.start) - start).Seconds()}
	for _, t := range g.turns {
		r.waits[t.waiter] = append(r.waits[t.waiter], millis(t.got-t.called))
	}
	return r, g.err
}
