package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// pairs locks and unlocks for a while, and appends the duration of each pair to took.
func (b *bench) pairs(ctx context.Context, p process, key string, took []time.Duration) []time.Duration {
	ctx, cancel := b.limited(ctx, b.slice)
	defer cancel()
	for end := time.Now().Add(b.slice); ; {
		start := time.Now()
		check(lockOnce(ctx, p, key))
		now := time.Now()
		took = append(took, now.Sub(start))
		if now.After(end) {
			return took
		}
	}
}

// free measures a lock without contention, one pair at a time, with the
// server on its own CPU, and on the CPU of the clients.
func free(ctx context.Context, b *bench) *table {
	return freeOn(ctx, b, 1, "of its own", 1.10)
}

func freeShared(ctx context.Context, b *bench) *table {
	return freeOn(ctx, b, 0, "shared with the clients", 1.20)
}

func freeOn(ctx context.Context, b *bench, cpu int, whose string, atMost float64) *table {
	all := b.freeContenders()
	procs := b.openAll(all, halfMinute)
	servers := []int{b.srv.Pid()}
	if b.etcd != nil {
		servers = append(servers, b.etcd.pid)
	}
	b.place(servers, 0, cpu)
	t := newTable("Free lock: lock and unlock, one goroutine, the server on a CPU "+whose,
		column{Name: "p50 µs"}, column{Name: "× limit", Digits: 2, AtMost: atMost, by: least},
		column{Name: "p99 µs"}, column{Name: "allocations", AtMost: 20})
	took := make([]time.Duration, 0, 1<<16)
	return b.compareOn(t, all, procs, b.rounds, func(_ contender, p process, key string) []float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took = b.pairs(ctx, p, key, took[:0])
		runtime.ReadMemStats(&after)
		us := each(took, micros)
		return []float64{median(us), quantile(us, 0.99), float64(after.Mallocs-before.Mallocs) / float64(len(took))}
	})
}

// place puts the clients and the servers on one CPU each, the same or different, until the end of the
// attempt: otherwise chance decides, and that alone is a factor of three in a round trip. On other systems
// than Linux it has no effect.
func (b *bench) place(servers []int, client, server int) {
	if runtime.GOOS != "linux" {
		return
	}
	last := runtime.NumCPU() - 1
	pin := func(pid int, cpus string) error {
		return exec.Command("taskset", "--all-tasks", "--cpu-list", "--pid", cpus, strconv.Itoa(pid)).Run()
	}
	b.Cleanup(func() {
		for _, pid := range append(servers, os.Getpid()) {
			_ = pin(pid, fmt.Sprintf("0-%d", last))
		}
	})
	for _, pid := range servers {
		check(pin(pid, strconv.Itoa(min(server, last))))
	}
	check(pin(os.Getpid(), strconv.Itoa(client)))
}

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
func (b *bench) crowdOfPairs(ctx context.Context, n int, name, keys string, procs ...process) *work {
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
	check(all)
	return &sum
}

// rate returns pairs per second, or NaN if a goroutine hung.
func (w *work) rate() float64 {
	if w.hung > 0 {
		return math.NaN()
	}
	return w.pairs / w.took.Seconds()
}

// throughput measures how many locks n goroutines take.
func throughput(n int, keys string) func(context.Context, *bench) *table {
	return func(ctx context.Context, b *bench) *table {
		t := newTable(fmt.Sprintf("Throughput: %d goroutines, each with %s", n, keys),
			column{Name: "pairs/s"}, column{Name: "% of limit", AtLeast: 85, by: most, unit: 100},
			column{Name: "% of its bare client", by: bare, unit: 100}, column{Name: "hung", None: true})
		return b.compareOpen(t, b.freeContenders(), halfMinute, func(_ contender, p process, key string) []float64 {
			w := b.crowdOfPairs(ctx, n, key, keys, p)
			return []float64{w.rate(), w.hung}
		})
	}
}

// serverTime measures the cost of a free lock to the server, by the server's own count,
// while 16 goroutines keep it busy: an idle server has cold caches.
func serverTime(keys string) func(context.Context, *bench) *table {
	return func(ctx context.Context, b *bench) *table {
		t := newTable("Server time of a free lock and unlock, with "+keys,
			column{Name: "µs", Digits: 1}, column{Name: "× limit", Digits: 2, AtMost: 2.5, by: least}, column{Name: "commands", Digits: 1})
		all := slices.DeleteFunc(b.freeContenders(), func(c contender) bool { return c.client == etcdClient }) // it does not count time
		return b.compareOpen(t, all, halfMinute, func(c contender, p process, key string) []float64 {
			var w *work
			l := b.loadOf(c, func() { w = b.crowdOfPairs(ctx, 16, key, keys, p) })
			return []float64{l.usec / w.pairs, l.calls / w.pairs}
		})
	}
}

// capacity measures the CPU time of the server per pair when 256 goroutines
// keep it busy, including the network, by the number of processes and
// of keys. A core carries as many pairs as fit into its time.
func capacity(ctx context.Context, b *bench) *table {
	const goroutines = 256
	t := newTable(fmt.Sprintf("Load of one core of the server: %d goroutines, each its own lock", goroutines),
		column{Name: "server CPU µs per pair", Digits: 1}, column{Name: "pairs/s a core carries"})
	compare := func(label string, n int) {
		all := b.pick(rawRueidis(), leaseholdGoRedis(), leaseholdRueidis())
		for i := range all {
			all[i].name += label
		}
		b.compare(t, all, b.crowds, func(_ int, c contender, key string) []float64 {
			procs := b.openAll(slices.Repeat([]contender{c}, n), settings{ttl: outlast})
			b.crowdOfPairs(ctx, goroutines, key+":warm", ownKey, procs...)
			var w *work
			l := b.loadOf(c, func() { w = b.crowdOfPairs(ctx, goroutines, key, ownKey, procs...) })
			us := micros(l.cpu) / w.pairs
			return []float64{us, 1e6 / us}
		})
	}
	for _, n := range []int{1, 4, 16} {
		compare(fmt.Sprintf(", processes: %d", n), n)
	}
	b.populate(ctx)
	compare(fmt.Sprintf(", 4, next to %d keys", b.keys), 4)
	return t
}

// populate makes keys that have no relation to locks.
func (b *bench) populate(ctx context.Context) {
	const batch = 10_000
	for start := 0; start < b.keys; start += batch {
		pipe := b.srv.Client().Pipeline()
		for i := start; i < min(start+batch, b.keys); i++ {
			pipe.Set(ctx, "somebody's:"+strconv.Itoa(i), "something", 0)
		}
		_ = need(pipe.Exec(ctx))
	}
}
