package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

// work is the result of goroutines that lock and unlock.
type work struct {
	pairs float64
	took  time.Duration
	hung  float64 // goroutines that never got a lock that was free
}

// The keys of a goroutine: always the same one, or a fresh one for each lock.
const (
	ownKey    = "its own lock"
	freshKeys = "a fresh name for each lock"
)

// crowdOfPairs makes goroutines, which are spread over the processes, lock and unlock, each with
// its own keys and its own context.
func (b *bench) crowdOfPairs(ctx context.Context, n int, name, keys string, procs ...process) (*work, error) {
	crowd, cancel := b.limited(ctx, b.slice)
	defer cancel()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		sum work
		all error
	)
	start := time.Now()
	end := start.Add(b.slice)
	for i := range n {
		p := procs[i%len(procs)]
		wg.Go(func() {
			key := fmt.Sprintf("%s:%d", name, i)
			next := key
			own, cancel := context.WithCancel(crowd)
			defer cancel()
			made := 0
			var err error
			for ; err == nil && time.Now().Before(end); made++ {
				if keys == freshKeys {
					next = key + ":" + strconv.Itoa(made)
				}
				err = lockOnce(own, p, next)
			}
			mu.Lock()
			defer mu.Unlock()
			sum.pairs += float64(made)
			sum.took = time.Since(start)
			switch {
			case err == nil:
			case crowd.Err() != nil && ctx.Err() == nil:
				sum.hung++
			default:
				all = err
			}
		})
	}
	wg.Wait()
	return &sum, all
}

// rate returns pairs per second, or NaN if a goroutine hung.
func (w *work) rate() float64 {
	if w.hung > 0 {
		return math.NaN()
	}
	return w.pairs / w.took.Seconds()
}

// throughput measures how many locks n goroutines take.
func throughput(n int, keys string) func(context.Context, *bench) (*table, error) {
	return func(ctx context.Context, b *bench) (*table, error) {
		t := newTable(fmt.Sprintf("Throughput: %d goroutines, each with %s", n, keys),
			column{Name: "pairs/s"}, column{Name: "% of limit", AtLeast: 85, by: most, unit: 100},
			column{Name: "% of its bare client", by: bare, unit: 100}, column{Name: "hung", None: true})
		return b.compareOpen(t, b.freeContenders(), halfMinute, func(_ contender, p process, key string) ([]float64, error) {
			w, err := b.crowdOfPairs(ctx, n, key, keys, p)
			if err != nil {
				return nil, err
			}
			return []float64{w.rate(), w.hung}, nil
		})
	}
}

// serverTime measures the cost of a free lock to the server, by the server's own count,
// while 16 goroutines keep it busy: an idle server has cold caches.
func serverTime(keys string) func(context.Context, *bench) (*table, error) {
	return func(ctx context.Context, b *bench) (*table, error) {
		t := newTable("Server time of a free lock and unlock, with "+keys,
			column{Name: "µs", Digits: 1}, column{Name: "× limit", Digits: 2, AtMost: 2.5, by: least}, column{Name: "commands", Digits: 1})
		all := slices.DeleteFunc(b.freeContenders(), func(c contender) bool { return c.client == etcdClient }) // it does not count time
		return b.compareOpen(t, all, halfMinute, func(c contender, p process, key string) ([]float64, error) {
			var w *work
			l, err := b.loadOf(c, func() (err error) {
				w, err = b.crowdOfPairs(ctx, 16, key, keys, p)
				return err
			})
			if err != nil {
				return nil, err
			}
			return []float64{l.usec / w.pairs, l.calls / w.pairs}, nil
		})
	}
}
