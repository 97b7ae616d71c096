package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// local measures a lock that the goroutines of some clients always wait for, and release at
// once. It is handed over by the store, or a given number of times inside the process.
func local(ctx context.Context, b *bench, clients int) *table {
	atLeast := 50.0
	if clients > 1 {
		atLeast = 10
	}
	without := leaseholdGoRedis()
	without.kind = limit // the reference for the other contenders
	all := []contender{without}
	for _, n := range []int{10, 100, 1000} {
		name := fmt.Sprintf("Leasehold, go-redis, n = %d", n)
		all = append(all, leaseholdOn(name, goRedisClient, openGoRedis, leasehold.WithLocalHandover(n)))
	}
	t := newTable(fmt.Sprintf("Hand-over inside the process: %d goroutines in %d clients, hold 0, queue again", b.waiters, clients),
		column{Name: "hand-overs/s"}, column{Name: "× without", Digits: 1, AtLeast: atLeast, by: least},
		column{Name: "commands per 100", Digits: 1}, column{Name: "Jain index of clients", Digits: 2},
		column{Name: "of goroutines", Digits: 2}, column{Name: "longest run of a client"})
	return b.compare(t, b.pick(all...), b.crowds, func(_ int, c contender, key string) []float64 {
		return localOnce(ctx, b, c, clients, key)
	})
}

// tally counts grants. The lock protects it: it reports two holders at
// once, and a token that is not greater than all before.
type tally struct {
	mu           sync.Mutex
	callers      []float64
	inside       bool
	token        int64
	last         int // client
	run, longest int
	err          error
}

func (t *tally) enter(caller, client int, token int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside || token <= t.token {
		t.err = fmt.Errorf("token %d after %d, held at once: %v", token, t.token, t.inside)
	}
	t.inside, t.token = true, token
	t.callers[caller]++
	if client != t.last {
		t.last, t.run = client, 0
	}
	t.run++
	t.longest = max(t.longest, t.run)
}

func (t *tally) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside = false
}

// reset clears the counts, and returns how many grants each caller had, and the
// longest run of a client.
func (t *tally) reset() (callers []float64, longest int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	callers, longest = t.callers, t.longest
	t.callers, t.longest = make([]float64, len(callers)), 0
	return callers, longest
}

func localOnce(ctx context.Context, b *bench, c contender, clients int, key string) []float64 {
	procs := b.openAll(slices.Repeat([]contender{c}, clients), halfMinute)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	count := &tally{callers: make([]float64, b.waiters)}
	var wg sync.WaitGroup
	for w := range b.waiters {
		wg.Go(func() { contend(ctx, procs[w%clients], key, count, w, w%clients) })
	}
	time.Sleep(b.warmUp)
	var (
		callers []float64
		longest int
		took    float64
	)
	load := b.loadOf(c, func() {
		count.reset()
		began := time.Now()
		time.Sleep(b.crowd)
		took = time.Since(began).Seconds()
		callers, longest = count.reset()
	})
	cancel()
	wg.Wait()
	check(count.err)
	byClient := make([]float64, clients)
	for w, n := range callers {
		byClient[w%clients] += n
	}
	grants := sum(callers)
	return []float64{grants / took, 100 * load.calls / grants, jain(byClient), jain(callers), float64(longest)}
}

// contend takes the lock and releases it until ctx ends.
func contend(ctx context.Context, p process, key string, count *tally, caller, client int) {
	for ctx.Err() == nil {
		h, err := p.Lock(ctx, key)
		if err != nil {
			continue
		}
		count.enter(caller, client, h.(*leasehold.Lease).Token())
		count.leave()
		_ = h.Release() // it may end with ctx
	}
}
