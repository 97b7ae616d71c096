package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// permitter is a process that supports a lock with several places.
type permitter interface {
	// Permit takes one of limit places. A bare client does not wait for it.
	Permit(ctx context.Context, key string, limit int) (held, error)
}

// permits measures a semaphore: with a place for every goroutine, and with fewer
// places than goroutines. The limit does not wait, so it takes no
// part in the second.
func permits(ctx context.Context, b *bench) (*table, error) {
	const (
		free   = 16 // goroutines, and places
		crowd  = 32 // goroutines for few places
		places = 4
	)
	all := b.pick([]contender{rawGoRedis(), rawRueidis(), leaseholdGoRedis(), leaseholdRueidis()})
	rate, used, most, wire := grid(all), grid(all), grid(all), grid(all)
	for round := range b.crowds {
		for i, c := range all {
			key := fmt.Sprintf("permits:%d:%d", round, i)
			r, err := permitOnce(ctx, b, c, key+":free", free, free, 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rate[i] = append(rate[i], r.rate)
			if c.kind == limit {
				continue
			}
			if r, err = permitOnce(ctx, b, c, key, crowd, places, holding); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			used[i], most[i] = append(used[i], 100*r.used), append(most[i], float64(r.most))
			wire[i] = append(wire[i], r.wire)
		}
	}
	t := newTable(fmt.Sprintf("Semaphore: %d goroutines with a place for each; %d for %d places, hold 1 ms, queue again", free, crowd, places),
		column{Name: "free: pairs/s", Digits: 0}, column{Name: "% of limit", Digits: 0}, column{Name: "crowded: places in use, %", Digits: 0},
		column{Name: "most inside", Digits: 0, AtMost: places}, column{Name: "commands per turn", Digits: 1})
	limit := best(all, rate, -1)
	for i, c := range all {
		t.add(c, rate[i], percent(ratios(rate[i], limit)), used[i], most[i], wire[i])
	}
	return t, nil
}

// permitRun is the result of goroutines that took places.
type permitRun struct {
	rate float64 // places taken per second
	used float64 // part of the places that was held, on average
	most int     // inside at once
	wire float64 // commands per turn
}

func permitOnce(ctx context.Context, b *bench, c contender, key string, n, limit int, keep time.Duration) (*permitRun, error) {
	g, err := b.gather(ctx, c, key, processes)
	if err != nil {
		return nil, err
	}
	defer closeAll(g.procs)
	before, err := b.load(ctx, c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.limited(ctx, b.crowd)
	defer cancel()
	var wg sync.WaitGroup
	start := time.Since(g.start)
	for i := range n {
		p := g.procs[i%processes].(permitter)
		take := func() (held, error) { return p.Permit(ctx, key, limit) }
		wg.Go(func() {
			for time.Since(g.start) < start+b.crowd/2 && g.turn(ctx, i, keep, take) {
			}
		})
	}
	wg.Wait()
	took := time.Since(g.start) - start
	after, err := b.load(ctx, c)
	if err != nil {
		return nil, err
	}
	calls, _ := after.since(before, c.wire)
	turns := float64(len(g.turns))
	r := &permitRun{rate: turns / took.Seconds(), most: mostInside(g.turns), wire: calls / turns}
	for _, t := range g.turns {
		r.used += (t.leaves - t.got).Seconds() / took.Seconds() / float64(limit)
	}
	return r, g.err
}

// mostInside returns the greatest number of turns that held a place at once.
func mostInside(turns []turn) int {
	type step struct {
		at time.Duration
		by int
	}
	var steps []step
	for _, t := range turns {
		steps = append(steps, step{t.got, 1}, step{t.leaves, -1})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	in, most := 0, 0
	for _, s := range steps {
		in += s.by
		most = max(most, in)
	}
	return most
}
