package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// crash measures the time from the end of a dead holder's lock until a waiter has it. The bare
// queue does not recover, and a session of etcd lives for at least some seconds.
func crash(ctx context.Context, b *bench) *table {
	all := slices.DeleteFunc(b.waitingContenders(), func(c contender) bool { return c.kind == limit || c.client == etcdClient })
	t := newTable("Crash of the holder: time beyond the TTL until the next one has the lock",
		column{Name: "median ms", Digits: 1, AtMost: 5}, column{Name: "worst ms", Digits: 1, AtMost: 20})
	return b.compare(t, all, 1, func(_ int, c contender, key string) []float64 {
		late := crashOnce(ctx, b, c, key)
		return []float64{median(late), quantile(late, 1)}
	})
}

// crashOnce kills the holders of many keys, one after the other. The ends of
// locks and the starts of waits are at irregular times, so that they do not fall in with
// a polling interval, nor with the server's own of 100 ms.
func crashOnce(ctx context.Context, b *bench, c contender, key string) []float64 {
	g := b.gather(ctx, c, key, processes)
	ctx, cancel := b.limited(ctx, 2*b.crashTTL)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		late []float64
	)
	for i := range b.crashes {
		key := fmt.Sprintf("%s:%d", key, i)
		check(g.procs[0].(crasher).Crash(ctx, key, b.crashTTL))
		end := time.Now().Add(b.crashTTL)
		wg.Go(func() {
			time.Sleep(time.Duration(i*29%100) * time.Millisecond)
			h, err := g.procs[1].Lock(ctx, key)
			got := time.Now()
			if err == nil {
				err = h.Release()
			}
			mu.Lock()
			defer mu.Unlock()
			g.err = errors.Join(g.err, err)
			late = append(late, max(0, millis(got.Sub(end))))
		})
		time.Sleep(37 * time.Millisecond)
	}
	wg.Wait()
	check(g.err)
	return late
}

// stall measures an acquire that is in progress while the server stops answering
// for half a second: how long after that it returns, and whether it returns.
func stall(ctx context.Context, b *bench) *table {
	const pause = 500 * time.Millisecond
	t := newTable(fmt.Sprintf("The server stalls for %v during an acquire", pause),
		column{Name: "answer after the stall, ms", Digits: 1, AtMost: 5},
		column{Name: fmt.Sprintf("acquires of %d without an answer in %v", b.crowds, b.patience), None: true, total: true, failed: 1})
	return b.compare(t, b.freeContenders(), b.crowds, func(_ int, c contender, key string) []float64 {
		return []float64{stallOnce(ctx, b, c, key, pause), 0}
	})
}

func stallOnce(ctx context.Context, b *bench, c contender, key string, pause time.Duration) float64 {
	p := b.open(c, halfMinute)
	ctx, cancel := b.limited(ctx, pause)
	defer cancel()
	check(lockOnce(ctx, p, key)) // connections are open
	check(syscall.Kill(b.pid(c), syscall.SIGSTOP))
	time.Sleep(20 * time.Millisecond) // its threads stop one by one
	goes := make(chan time.Time, 1)
	time.AfterFunc(pause, func() {
		goes <- time.Now()
		_ = syscall.Kill(b.pid(c), syscall.SIGCONT)
	})
	h, err := p.Lock(ctx, key)
	got := time.Now()
	again := <-goes
	check(err)
	check(h.Release())
	return millis(got.Sub(again))
}
