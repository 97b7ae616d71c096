package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"
)

// pairs locks and unlocks for a while and returns the duration of each pair.
func (b *bench) pairs(ctx context.Context, p process, key string, took []time.Duration) ([]time.Duration, error) {
	ctx, cancel := b.limited(ctx, b.slice)
	defer cancel()
	for end := time.Now().Add(b.slice); ; {
		start := time.Now()
		if err := lockOnce(ctx, p, key); err != nil {
			return took, err
		}
		now := time.Now()
		took = append(took, now.Sub(start))
		if now.After(end) {
			return took, nil
		}
	}
}

// free measures a lock without contention, one pair at a time, with the
// server on its own CPU, and on the CPU of the clients.
func free(ctx context.Context, b *bench) (*table, error) {
	return freeOn(ctx, b, 1, "of its own", 1.10)
}

func freeShared(ctx context.Context, b *bench) (*table, error) {
	return freeOn(ctx, b, 0, "shared with the clients", 1.20)
}

func freeOn(ctx context.Context, b *bench, cpu int, whose string, atMost float64) (*table, error) {
	all := b.freeContenders()
	procs, err := b.openAll(all, settings{ttl: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	restore, err := place(b.pids(), 0, cpu)
	defer restore()
	if err != nil {
		return nil, err
	}

	p50, p99, allocs := grid(all), grid(all), grid(all)
	took := make([]time.Duration, 0, 1<<16)
	for round := range b.rounds + 1 { // the first one warms up
		for i, p := range procs {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			took, err = b.pairs(ctx, p, fmt.Sprintf("free:%d:%d", i, round), took[:0])
			runtime.ReadMemStats(&after)
			made := float64(len(took))
			if err != nil {
				if err := excuse(all[i], err); err != nil {
					return nil, err
				}
				took, made = took[:0], math.NaN()
			}
			if round == 0 {
				continue
			}
			us := each(took, micros)
			p50[i] = append(p50[i], median(us))
			p99[i] = append(p99[i], quantile(us, 0.99))
			allocs[i] = append(allocs[i], float64(after.Mallocs-before.Mallocs)/made)
		}
	}

	t := newTable("Free lock: lock and unlock, one goroutine, the server on a CPU "+whose,
		column{Name: "p50 µs", Digits: 0}, column{Name: "× limit", Digits: 2, AtMost: atMost},
		column{Name: "p99 µs", Digits: 0}, column{Name: "allocations", Digits: 0, AtMost: 20})
	least := best(all, p50, 1)
	for i, c := range all {
		t.add(c, p50[i], ratios(p50[i], least), p99[i], allocs[i])
	}
	return t, nil
}

// grid returns a list of rounds for every contender.
func grid(all []contender) [][]float64 { return make([][]float64, len(all)) }
