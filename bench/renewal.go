package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// renewal measures the cost of keeping many leases alive.
func renewal(ctx context.Context, b *bench) *table {
	return renewals(ctx, b, upkeepPlan{count: b.leases, ttl: b.ttl, watch: b.watch}, b.freeContenders())
}

// renewalMost is the same with a million leases, for contenders that renew many of them by one
// command. After the measurement the server stops for a while.
func renewalMost(ctx context.Context, b *bench) *table {
	plan := upkeepPlan{count: b.most, ttl: b.mostTTL, watch: b.mostTTL / 3, away: b.mostTTL / 6}
	return renewals(ctx, b, plan, b.pick(rawRueidis(), leaseholdGoRedis(), leaseholdRueidis()))
}

// upkeepPlan is a number of leases, and how long they are watched.
type upkeepPlan struct {
	count      int
	ttl, watch time.Duration
	away       time.Duration // how long the server is stopped after that; 0 means it is not stopped
}

func renewals(ctx context.Context, b *bench, plan upkeepPlan, all []contender) *table {
	title := fmt.Sprintf("Renewal: %d leases, TTL %v", plan.count, plan.ttl)
	if plan.away > 0 {
		title += fmt.Sprintf(", the server stopped for %v after that", plan.away)
	}
	t := newTable(title,
		column{Name: "goroutines per lease", Digits: 1, None: true}, column{Name: "heap bytes per lease", AtMost: 500},
		column{Name: "stack bytes per lease"}, column{Name: "commands/s"},
		column{Name: "client CPU, %", Digits: 1, AtMost: 1.5}, column{Name: "server CPU, %", Digits: 1, AtMost: 2},
		column{Name: "locks lost", None: true})
	return b.compare(t, all, 1, func(_ int, c contender, key string) []float64 {
		return renewOnce(ctx, b, c, plan, key)
	})
}

func renewOnce(ctx context.Context, b *bench, c contender, plan upkeepPlan, name string) []float64 {
	count, ttl := plan.count, plan.ttl
	p := b.open(c, settings{ttl: ttl, renew: true})
	ctx, cancel := b.limited(ctx, ttl+plan.watch+2*plan.away+20*time.Second+time.Duration(count)*time.Millisecond)
	defer cancel()
	all := newLeases(name, count)
	// Open connections and pools before the measurement: they are not the cost of a lease.
	some := all[:min(count, 10_000)]
	some.lock(ctx, p)
	if some.release() > 0 {
		check(errLost)
	}
	before := memory()
	all.lock(ctx, p)
	after := memory()
	time.Sleep(ttl / 3) // until renewals are under way
	var took, client float64
	l := b.loadOf(c, func() {
		cpu, start := processCPU(), time.Now()
		time.Sleep(plan.watch)
		took = time.Since(start).Seconds()
		client = (processCPU() - cpu).Seconds()
	})
	if plan.away > 0 {
		check(syscall.Kill(b.pid(c), syscall.SIGSTOP))
		time.Sleep(plan.away)
		check(syscall.Kill(b.pid(c), syscall.SIGCONT))
		time.Sleep(ttl / 3) // until late renewals are done
	}
	n := float64(count)
	return []float64{
		(after.goroutines - before.goroutines) / n, (after.heap - before.heap) / n, (after.stack - before.stack) / n,
		l.calls / took, 100 * client / took, 100 * l.cpu.Seconds() / took, all.release(),
	}
}

// leases are locks of one process.
type leases []struct {
	key  string
	held held // nil after release
}

func newLeases(name string, n int) leases {
	all := make(leases, n)
	for i := range all {
		all[i].key = fmt.Sprintf("%s:%d", name, i)
	}
	return all
}

func (all leases) lock(ctx context.Context, p process) {
	check(spread(len(all), func(i int) (err error) {
		all[i].held, err = p.Lock(ctx, all[i].key)
		return err
	}))
}

// release returns how many of the leases were lost.
func (all leases) release() float64 {
	var lost atomic.Int64
	_ = spread(len(all), func(i int) error {
		if all[i].held.Release() != nil {
			lost.Add(1)
		}
		all[i].held = nil
		return nil
	})
	return float64(lost.Load())
}

// spread runs f for 0 to n-1 in some goroutines.
func spread(n int, f func(i int) error) error {
	const workers = 32
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if err := f(i); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

type footprint struct{ goroutines, heap, stack float64 }

func memory() footprint {
	runtime.GC()
	runtime.GC() // pools keep their memory for one cycle
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{float64(runtime.NumGoroutine()), float64(m.HeapAlloc), float64(m.StackInuse)}
}
