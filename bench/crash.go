package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errUnfit is the error of a contender that cannot take part.
var errUnfit = errors.New("does not recover")

// crash measures the time from the end of a dead holder's lock until a waiter has it.
func crash(ctx context.Context, b *bench) (*table, error) {
	t := newTable("Crash of the holder: time beyond the TTL until the next one has the lock",
		column{Name: "median ms", Digits: 1, AtMost: 5}, column{Name: "worst ms", Digits: 1, AtMost: 20})
	for i, c := range b.waitingContenders() {
		late, err := crashOnce(ctx, b, c, fmt.Sprintf("crash:%d", i))
		if errors.Is(err, errUnfit) {
			continue
		}
		if err != nil {
			if err := excuse(c, err); err != nil {
				return nil, err
			}
			late = nil
		}
		t.add(c, []float64{median(late)}, []float64{quantile(late, 1)})
	}
	return t, nil
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
		if err := g.procs[0].Crash(ctx, key, b.crashTTL); err != nil {
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
