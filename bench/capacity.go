package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
)

// capacity measures the CPU time of the server per pair when 256 goroutines
// keep it busy, including the network, by the number of processes and
// of keys. A core carries as many pairs as fit into its time.
func capacity(ctx context.Context, b *bench) (*table, error) {
	const goroutines = 256
	t := newTable(fmt.Sprintf("Load of one core of the server: %d goroutines, each its own lock", goroutines),
		column{Name: "server CPU µs per pair", Digits: 1}, column{Name: "pairs/s a core carries", Digits: 0})
	measure := func(c contender, label string, procs int) error {
		var cpu, carries []float64
		for round := range b.crowds {
			us, err := capacityOnce(ctx, b, c, procs, goroutines, fmt.Sprintf("capacity:%s%s:%d", c.name, label, round))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			cpu, carries = append(cpu, us), append(carries, 1e6/us)
		}
		c.name += label
		t.add(c, cpu, carries)
		return nil
	}
	all := b.pick([]contender{rawRueidis(), leaseholdGoRedis(), leaseholdRueidis()})
	for _, c := range all {
		for _, procs := range []int{1, 4, 16} {
			if err := measure(c, fmt.Sprintf(", processes: %d", procs), procs); err != nil {
				return nil, err
			}
		}
	}
	if err := b.srv.populate(ctx, b.keys); err != nil {
		return nil, err
	}
	for _, c := range all {
		if err := measure(c, fmt.Sprintf(", 4, next to %d keys", b.keys), 4); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// capacityOnce returns the µs of the server's CPU that a pair takes.
func capacityOnce(ctx context.Context, b *bench, c contender, procs, goroutines int, key string) (float64, error) {
	all := make([]contender, procs)
	for i := range all {
		all[i] = c
	}
	opened, err := b.openAll(all, settings{ttl: outlast})
	if err != nil {
		return 0, err
	}
	defer closeAll(opened)
	run := func(round string) (pairs int, err error) {
		var (
			wg sync.WaitGroup
			mu sync.Mutex
		)
		for i, p := range opened {
			wg.Go(func() {
				w, e := b.crowdOfPairs(ctx, p, goroutines/procs, fmt.Sprintf("%s:%s:%d", key, round, i), ownKey)
				mu.Lock()
				defer mu.Unlock()
				pairs += w.pairs
				if e != nil {
					err = e
				}
			})
		}
		wg.Wait()
		return pairs, err
	}
	if _, err := run("warm"); err != nil {
		return 0, err
	}
	before, err := b.load(ctx, c)
	if err != nil {
		return 0, err
	}
	pairs, err := run("count")
	if err != nil {
		return 0, err
	}
	after, err := b.load(ctx, c)
	if err != nil {
		return 0, err
	}
	return micros(after.cpu-before.cpu) / float64(pairs), err
}

// populate makes n keys that have no relation to locks.
func (s *server) populate(ctx context.Context, n int) error {
	const batch = 10_000
	for start := 0; start < n; start += batch {
		pipe := s.admin.Pipeline()
		for i := start; i < min(start+batch, n); i++ {
			pipe.Set(ctx, "somebody's:"+strconv.Itoa(i), "something", 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
