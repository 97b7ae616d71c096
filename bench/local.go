package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
)

// localContenders hand a lock over by the store, and a given number of times inside the process.
func localContenders() []contender {
	all := []contender{leaseholdGoRedis()}
	for _, n := range []int{10, 100, 1000} {
		all = append(all, leaseholdOn(fmt.Sprintf("Leasehold, go-redis, n = %d", n), goRedisClient, openGoRedis, leasehold.WithLocalHandover(n)))
	}
	return all
}

// local measures a lock that the goroutines of some clients always wait for, and release at
// once.
func local(ctx context.Context, b *bench, clients int) (*table, error) {
	all := b.pick(localContenders())
	rate, wire, fair, even, run := grid(all), grid(all), grid(all), grid(all), grid(all)
	for round := range b.crowds {
		for i, c := range all {
			r, err := localOnce(ctx, b, c, clients, fmt.Sprintf("local:%d:%d:%d", clients, round, i))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rate[i] = append(rate[i], r.rate)
			wire[i] = append(wire[i], r.wire)
			fair[i] = append(fair[i], jain(r.clients))
			even[i] = append(even[i], jain(r.callers))
			run[i] = append(run[i], float64(r.run))
		}
	}
	least := 50.0
	if clients > 1 {
		least = 10
	}
	t := newTable(fmt.Sprintf("Hand-over inside the process: %d goroutines in %d clients, hold 0, queue again", b.waiters, clients),
		column{Name: "hand-overs/s", Digits: 0}, column{Name: "× without", Digits: 1},
		column{Name: "commands per 100", Digits: 1}, column{Name: "Jain index of clients", Digits: 2},
		column{Name: "of goroutines", Digits: 2}, column{Name: "longest run of a client", Digits: 0})
	t.Columns[1].AtLeast = least
	for i, c := range all {
		if i == 0 {
			c.kind = limit // the reference for the other contenders
		}
		t.add(c, rate[i], ratios(rate[i], rate[0]), wire[i], fair[i], even[i], run[i])
	}
	return t, nil
}

type localRun struct {
	rate, wire       float64
	clients, callers []float64
	run              int // grants of one client in a row
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

func localOnce(ctx context.Context, b *bench, c contender, clients int, key string) (*localRun, error) {
	var procs []process
	defer func() { closeAll(procs) }()
	for range clients {
		p, err := b.open(c, settings{ttl: 30 * time.Second, waiters: b.waiters / clients})
		if err != nil {
			return nil, err
		}
		procs = append(procs, p)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	count := &tally{callers: make([]float64, b.waiters)}
	var wg sync.WaitGroup
	for w := range b.waiters {
		wg.Go(func() { contend(ctx, procs[w%clients], key, count, w, w%clients) })
	}
	time.Sleep(b.warmUp)
	before, err := b.load(ctx, c)
	if err != nil {
		return nil, err
	}
	count.reset()
	began := time.Now()
	time.Sleep(b.crowd)
	took := time.Since(began)
	callers, longest := count.reset()
	after, err := b.load(ctx, c)
	cancel()
	wg.Wait()
	if err := errors.Join(err, count.err); err != nil {
		return nil, err
	}
	r := &localRun{callers: callers, clients: make([]float64, clients), run: longest}
	grants := 0.0
	for w, n := range callers {
		grants += n
		r.clients[w%clients] += n
	}
	calls, _ := after.since(before, c.wire)
	r.rate, r.wire = grants/took.Seconds(), 100*calls/grants
	return r, nil
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
