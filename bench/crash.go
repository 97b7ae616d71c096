package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// crash measures the time from the end of a dead holder's lock until a waiter has it. The bare
// queue does not recover, and a session of etcd lives for at least some seconds.
func crash(ctx context.Context, b *bench) (*table, error) {
	all := slices.DeleteFunc(b.waitingContenders(), func(c contender) bool { return c.kind == limit || c.client == etcdClient })
	t := newTable("Crash of the holder: time beyond the TTL until the next one has the lock",
		column{Name: "median ms", Digits: 1, AtMost: 5}, column{Name: "worst ms", Digits: 1, AtMost: 20})
	return b.compare(t, all, 1, func(_ int, c contender, key string) ([]float64, error) {
		late, err := crashOnce(ctx, b, c, key)
		if err != nil {
			return nil, err
		}
		return []float64{median(late), quantile(late, 1)}, nil
	})
}

// crashOnce kills the holders of many keys, one after the other. The ends of
// locks and the starts of waits are at irregular times, so that they do not fall in with
// a polling interval, nor with the server's own of 100 ms.
func crashOnce(ctx context.Context, b *bench, c contender, key string) ([]float64, error) {
	g, err := b.gather(ctx, c, key, processes)
	if err != nil {
		return nil, err
	}
	defer closeAll(g.procs)
	ctx, cancel := b.limited(ctx, 2*b.crashTTL)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		late []float64
	)
	for i := range b.crashes {
		key := fmt.Sprintf("%s:%d", key, i)
		if err := g.procs[0].(crasher).Crash(ctx, key, b.crashTTL); err != nil {
			return nil, err
		}
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
	return late, g.err
}
