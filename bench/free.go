package main

import (
	"context"
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
	procs, err := b.openAll(all, halfMinute)
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	servers := []int{b.srv.Pid()}
	if b.etcd != nil {
		servers = append(servers, b.etcd.pid)
	}
	restore, err := place(servers, 0, cpu)
	defer restore()
	if err != nil {
		return nil, err
	}
	t := newTable("Free lock: lock and unlock, one goroutine, the server on a CPU "+whose,
		column{Name: "p50 µs"}, column{Name: "× limit", Digits: 2, AtMost: atMost, by: least},
		column{Name: "p99 µs"}, column{Name: "allocations", AtMost: 20})
	took := make([]time.Duration, 0, 1<<16)
	return b.compareOn(t, all, procs, b.rounds, func(_ contender, p process, key string) (_ []float64, err error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took, err = b.pairs(ctx, p, key, took[:0])
		runtime.ReadMemStats(&after)
		if err != nil {
			return nil, err
		}
		us := each(took, micros)
		return []float64{median(us), quantile(us, 0.99), float64(after.Mallocs-before.Mallocs) / float64(len(took))}, nil
	})
}
