package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// renewal measures the cost of keeping many leases alive.
func renewal(ctx context.Context, b *bench) (*table, error) {
	return renewals(ctx, b, upkeepPlan{count: b.leases, ttl: b.ttl, watch: b.watch}, b.freeContenders())
}

// renewalMost is the same with a million leases, for contenders that renew many of them by one
// command. After the measurement the server stops for a while.
func renewalMost(ctx context.Context, b *bench) (*table, error) {
	plan := upkeepPlan{count: b.most, ttl: b.mostTTL, watch: b.mostTTL / 3, away: b.mostTTL / 6}
	return renewals(ctx, b, plan, b.pick([]contender{rawRueidis(), leaseholdGoRedis(), leaseholdRueidis()}))
}

// upkeepPlan is a number of leases, and how long they are watched.
type upkeepPlan struct {
	count      int
	ttl, watch time.Duration
	away       time.Duration // how long the server is stopped after that; 0 means it is not stopped
}

func renewals(ctx context.Context, b *bench, plan upkeepPlan, all []contender) (*table, error) {
	title := fmt.Sprintf("Renewal: %d leases, TTL %v", plan.count, plan.ttl)
	if plan.away > 0 {
		title += fmt.Sprintf(", the server stopped for %v after that", plan.away)
	}
	t := newTable(title,
		column{Name: "goroutines per lease", Digits: 1, None: true}, column{Name: "heap bytes per lease", Digits: 0, AtMost: 500},
		column{Name: "stack bytes per lease", Digits: 0}, column{Name: "commands/s", Digits: 0},
		column{Name: "client CPU, %", Digits: 1, AtMost: 1.5}, column{Name: "server CPU, %", Digits: 1, AtMost: 2},
		column{Name: "locks lost", Digits: 0, None: true})
	for i, c := range all {
		r, err := renewOnce(ctx, b, c, plan, fmt.Sprintf("renewal:%d", i))
		if err != nil {
			if err := excuse(c, err); err != nil {
				return nil, err
			}
			t.add(c, nil, nil, nil, nil, nil, nil, nil)
			continue
		}
		t.add(c, []float64{r.goroutines}, []float64{r.heap}, []float64{r.stack}, []float64{r.commands},
			[]float64{r.client}, []float64{r.server}, []float64{r.lost})
	}
	return t, nil
}

// upkeep is the measured cost.
type upkeep struct{ goroutines, heap, stack, commands, client, server, lost float64 }

func renewOnce(ctx context.Context, b *bench, c contender, plan upkeepPlan, name string) (*upkeep, error) {
	count, ttl := plan.count, plan.ttl
	p, err := b.open(c, settings{ttl: ttl, renew: true})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	ctx, cancel := b.limited(ctx, ttl+plan.watch+2*plan.away+20*time.Second+time.Duration(count)*time.Millisecond)
	defer cancel()
	keys, leases := make([]string, count), make([]held, count)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s:%d", name, i)
	}
	lock := func(i int) (err error) { leases[i], err = p.Lock(ctx, keys[i]); return err }
	// Open connections and pools before the measurement: they are not the cost of a lease.
	some := min(count, 10_000)
	if err := spread(some, lock); err != nil {
		return nil, err
	}
	if err := spread(some, func(i int) error { return leases[i].Release() }); err != nil {
		return nil, err
	}
	clear(leases)

	before := memory()
	if err := spread(count, lock); err != nil {
		return nil, err
	}
	after := memory()
	r := &upkeep{}
	n := float64(count)
	r.goroutines = (after.goroutines - before.goroutines) / n
	r.heap, r.stack = (after.heap-before.heap)/n, (after.stack-before.stack)/n

	time.Sleep(ttl / 3) // until renewals are under way
	if err := r.watch(ctx, b, c, plan.watch); err != nil {
		return nil, err
	}
	if plan.away > 0 {
		if err := b.signal(c, syscall.SIGSTOP); err != nil {
			return nil, err
		}
		time.Sleep(plan.away)
		if err := b.signal(c, syscall.SIGCONT); err != nil {
			return nil, err
		}
		time.Sleep(ttl / 3) // until late renewals are done
	}
	var lost sync.Map
	_ = spread(count, func(i int) error {
		if leases[i].Release() != nil {
			lost.Store(i, true)
		}
		return nil
	})
	lost.Range(func(any, any) bool { r.lost++; return true })
	return r, nil
}

func (r *upkeep) watch(ctx context.Context, b *bench, c contender, length time.Duration) error {
	before, err := b.load(ctx, c)
	if err != nil {
		return err
	}
	cpu, start := processCPU(), time.Now()
	time.Sleep(length)
	took := time.Since(start).Seconds()
	r.client = 100 * (processCPU() - cpu).Seconds() / took
	after, err := b.load(ctx, c)
	if err != nil {
		return err
	}
	calls, _ := after.since(before, c.wire)
	r.commands = calls / took
	r.server = 100 * (after.cpu - before.cpu).Seconds() / took
	return nil
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

// processCPU returns the CPU time of this process.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
