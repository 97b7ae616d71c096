package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
)

// work is the result of goroutines that lock and unlock.
type work struct {
	pairs int
	took  time.Duration
	hung  int // goroutines that never got a lock that was free
}

// The keys of a goroutine: always the same one, or a fresh one for each lock.
const (
	ownKey    = "its own lock"
	freshKeys = "a fresh name for each lock"
)

// crowdOfPairs makes goroutines lock and unlock, each with its own keys and
// its own context.
func (b *bench) crowdOfPairs(ctx context.Context, p process, n int, name, keys string) (*work, error) {
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
			sum.pairs += made
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
	return float64(w.pairs) / w.took.Seconds()
}

func lockOnce(ctx context.Context, p process, key string) error {
	h, err := p.Lock(ctx, key)
	if err != nil {
		return err
	}
	return h.Release()
}

// throughput measures how many locks n goroutines take.
func throughput(n int, keys string) func(context.Context, *bench) (*table, error) {
	return func(ctx context.Context, b *bench) (*table, error) {
		all := b.freeContenders()
		procs, err := b.openAll(all, settings{ttl: 30 * time.Second})
		if err != nil {
			return nil, err
		}
		defer closeAll(procs)

		rate, hung := grid(all), grid(all)
		for round := range b.rounds + 1 {
			for i, p := range procs {
				w, err := b.crowdOfPairs(ctx, p, n, fmt.Sprintf("throughput:%d:%d", i, round), keys)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", all[i].name, err)
				}
				if round > 0 {
					hung[i] = append(hung[i], float64(w.hung))
					rate[i] = append(rate[i], w.rate())
				}
			}
		}

		t := newTable(fmt.Sprintf("Throughput: %d goroutines, each with %s", n, keys),
			column{Name: "pairs/s", Digits: 0}, column{Name: "% of limit", Digits: 0, AtLeast: 85},
			column{Name: "% of its bare client", Digits: 0}, column{Name: "hung", Digits: 0, None: true})
		most := best(all, rate, -1)
		for i, c := range all {
			t.add(c, rate[i], percent(ratios(rate[i], most)), percent(ratios(rate[i], bare(all, rate, c))), hung[i])
		}
		return t, nil
	}
}

func percent(values []float64) []float64 {
	for i := range values {
		values[i] *= 100
	}
	return values
}
