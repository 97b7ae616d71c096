package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// processes is the number of clients that the waiters are spread over.
const processes = 4

// holding is how long a waiter keeps the lock.
const holding = time.Millisecond

// apart is how much earlier a waiter must have come to count as overtaken:
// calls that are closer may reach the server in either order.
const apart = 5 * time.Millisecond

// turn is one wait for a lock and its outcome, in time since the start.
type turn struct {
	waiter              int
	called, got, leaves time.Duration
	served              bool // false if the end came first, at got
}

// crowd is a set of waiters for one key.
type crowd struct {
	who   contender
	key   string
	procs []process
	start time.Time

	mu    sync.Mutex
	turns []turn
	err   error
}

// gather opens the processes of a crowd and spreads the waiters over them. Each process has
// taken a lock once, so that its connections are open.
func (b *bench) gather(ctx context.Context, c contender, key string, waiters int) *crowd {
	ctx, cancel := b.limited(ctx, 0)
	defer cancel()
	s := settings{ttl: halfMinute.ttl, waiters: (waiters + processes - 1) / processes}
	procs := b.openAll(slices.Repeat([]contender{c}, processes), s)
	for i, p := range procs {
		check(lockOnce(ctx, p, fmt.Sprintf("%s:warm:%d", key, i)))
	}
	return &crowd{who: c, key: key, procs: procs, start: time.Now()}
}

// wait runs one turn of a waiter. It reports whether the waiter got the lock.
func (g *crowd) wait(ctx context.Context, waiter int) bool {
	return g.turn(ctx, waiter, holding, func() (held, error) { return g.procs[waiter%processes].Lock(ctx, g.key) })
}

// turn takes a lock, keeps it and releases it.
func (g *crowd) turn(ctx context.Context, waiter int, keep time.Duration, take func() (held, error)) bool {
	t := turn{waiter: waiter, called: time.Since(g.start)}
	h, err := take()
	t.got = time.Since(g.start)
	if err == nil {
		t.served = true
		stay(keep)
		t.leaves = time.Since(g.start)
		err = h.Release()
	}
	if ctx.Err() != nil { // some leases end with the context of their wait
		err = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turns = append(g.turns, t)
	if g.err == nil {
		g.err = err
	}
	return t.served
}

// stay keeps the lock for d. The thread sleeps in the kernel, because a sleep of Go waits together with
// the network, in whole milliseconds: a holder that receives a message during the sleep, such as the answer
// to a confirmation, would stay for up to a millisecond longer than other holders.
func stay(d time.Duration) {
	left := syscall.NsecToTimespec(d.Nanoseconds())
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

// served returns the turns that got the lock after from and released it before
// to, in the order of their grants. If two held it at once, served prints that, or fails
// if the contender is ours.
func (g *crowd) served(from, to time.Duration) []turn {
	check(g.err)
	var out []turn
	for _, t := range g.turns {
		if t.served && t.got >= from && t.leaves <= to {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b turn) int { return cmp.Compare(a.got, b.got) })
	for i := 1; i < len(out); i++ {
		if out[i].got >= out[i-1].leaves {
			continue
		}
		if g.who.kind == ours {
			check(fmt.Errorf("waiters %d and %d held the lock at once", out[i-1].waiter, out[i].waiter))
		}
		fmt.Fprintf(os.Stderr, "bench: %s: two waiters held the lock at once\n", g.who.name)
	}
	return out
}

// gaps returns the times from a release to the next holder, in ms. They contain
// the whole call of the release that comes before the hand-over.
func gaps(served []turn) []float64 {
	var out []float64
	for i := 1; i < len(served); i++ {
		out = append(out, millis(served[i].got-served[i-1].leaves))
	}
	return out
}

// overtakers returns the part of the acquisitions that passed an earlier
// waiter.
func overtakers(served, all []turn) float64 {
	n := 0
	for _, t := range served {
		if slices.ContainsFunc(all, func(o turn) bool { return o.called < t.called-apart && o.got > t.got }) {
			n++
		}
	}
	return float64(n) / float64(len(served))
}

// drain measures the time until n waiters have been served once each.
func drain(ctx context.Context, b *bench, n, rounds int) *table {
	atMost := 1.05
	if n < 10 {
		atMost = 1.1
	}
	t := newTable(fmt.Sprintf("Drain: %d waiters in %d clients, hold 1 ms, served once each", n, processes),
		column{Name: "total ms", Digits: 1}, column{Name: "× limit", Digits: 2, AtMost: atMost, by: least},
		column{Name: "overtook, %", None: true}, b.notServed(n))
	return b.compare(t, b.waitingContenders(), rounds, func(_ int, c contender, key string) []float64 {
		r := drainOnce(ctx, b, c, n, key)
		return []float64{r.took, r.overtook, r.hung}
	})
}

// notServed is the column of the waiters of n that are not served.
func (b *bench) notServed(n int) column {
	return column{Name: fmt.Sprintf("not served in %v", b.patience), None: true, failed: float64(n)}
}

type drained struct {
	took, overtook float64 // ms and %; NaN unless all waiters were served
	hung           float64 // waiters that were not served
}

func drainOnce(ctx context.Context, b *bench, c contender, n int, key string) drained {
	g := b.gather(ctx, c, key, n+1)
	ctx, cancel := b.limited(ctx, time.Duration(n)*(holding+c.arrival)+b.settle)
	defer cancel()
	first := need(g.procs[0].Lock(ctx, key))
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() { g.wait(ctx, w) })
		time.Sleep(max(time.Millisecond, c.arrival)) // so that there is an order to keep
	}
	time.Sleep(b.settle)

	start := time.Now()
	check(first.Release())
	wg.Wait()
	took := millis(time.Since(start))
	served := g.served(0, time.Since(g.start))
	if len(served) < n {
		return drained{math.NaN(), math.NaN(), float64(n - len(served))}
	}
	return drained{took: took, overtook: 100 * overtakers(served, g.turns)}
}

// requeue measures a lock with permanent waiters: a waiter that was served
// queues again at once.
func requeue(ctx context.Context, b *bench) *table {
	t := newTable(fmt.Sprintf("Hand-over: %d waiters in %d clients, hold 1 ms, queue again", b.waiters, processes),
		column{Name: "gap p50 ms", Digits: 2}, column{Name: "× limit", Digits: 2, AtMost: 1.15, by: least},
		column{Name: "gap p99 ms", Digits: 2},
		column{Name: "commands", Digits: 1, AtMost: 3}, column{Name: "Jain index", Digits: 2, AtLeast: 0.99},
		column{Name: "overtook, %", None: true}, column{Name: "wait p99 ms", AtMost: 150})
	return b.compare(t, b.waitingContenders(), b.crowds, func(_ int, c contender, key string) []float64 {
		return requeueOnce(ctx, b, c, key)
	})
}

func requeueOnce(ctx context.Context, b *bench, c contender, key string) []float64 {
	g := b.gather(ctx, c, key, b.waiters)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for w := range b.waiters {
		wg.Go(func() {
			for g.wait(ctx, w) && ctx.Err() == nil {
			}
		})
	}
	time.Sleep(b.warmUp)
	var from, to time.Duration
	load := b.loadOf(c, func() {
		from = time.Since(g.start)
		time.Sleep(b.crowd)
		to = time.Since(g.start)
	})
	cancel()
	wg.Wait()
	served := g.served(from, to)
	counts := make([]float64, b.waiters)
	for _, t := range served {
		counts[t.waiter]++
	}
	var waits []float64
	for _, t := range g.turns {
		if t.got >= from {
			waits = append(waits, millis(t.got-t.called))
		}
	}
	between := gaps(served)
	return []float64{
		median(between), quantile(between, 0.99), load.calls / float64(len(served)), jain(counts),
		100 * overtakers(served, g.turns), quantile(waits, 0.99),
	}
}
