package main

import (
	"context"
	"fmt"
	"math"
	"syscall"
	"time"
)

// stall measures an acquire that is in progress while the server stops answering
// for half a second: how long after that it returns, and whether it returns.
func stall(ctx context.Context, b *bench) (*table, error) {
	const pause = 500 * time.Millisecond
	t := newTable(fmt.Sprintf("The server stalls for %v during an acquire", pause),
		column{Name: "answer after the stall, ms", Digits: 1, AtMost: 5},
		column{Name: fmt.Sprintf("acquires of %d without an answer in %v", b.crowds, b.patience), None: true, total: true})
	return b.compare(t, b.freeContenders(), b.crowds, func(_ int, c contender, key string) ([]float64, error) {
		late, err := stallOnce(ctx, b, c, key, pause)
		if err != nil {
			return []float64{math.NaN(), 1}, err
		}
		return []float64{late, 0}, nil
	})
}

func stallOnce(ctx context.Context, b *bench, c contender, key string, pause time.Duration) (float64, error) {
	p, err := b.open(c, halfMinute)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	ctx, cancel := b.limited(ctx, pause)
	defer cancel()
	if err := lockOnce(ctx, p, key); err != nil { // connections are open
		return 0, err
	}
	if err := syscall.Kill(b.pid(c), syscall.SIGSTOP); err != nil {
		return 0, err
	}
	time.Sleep(20 * time.Millisecond) // its threads stop one by one
	goes := make(chan time.Time, 1)
	time.AfterFunc(pause, func() {
		goes <- time.Now()
		_ = syscall.Kill(b.pid(c), syscall.SIGCONT)
	})
	h, err := p.Lock(ctx, key)
	got := time.Now()
	again := <-goes
	if err != nil {
		return 0, err
	}
	return millis(got.Sub(again)), h.Release()
}
