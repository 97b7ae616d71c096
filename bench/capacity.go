package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// capacity measures the CPU time of the server per pair when 256 goroutines
// keep it busy, including the network, by the number of processes and
// of keys. A core carries as many pairs as fit into its time.
func capacity(ctx context.Context, b *bench) (*table, error) {
	const goroutines = 256
	t := newTable(fmt.Sprintf("Load of one core of the server: %d goroutines, each its own lock", goroutines),
		column{Name: "server CPU µs per pair", Digits: 1}, column{Name: "pairs/s a core carries"})
	compare := func(label string, n int) error {
		all := b.pick(rawRueidis(), leaseholdGoRedis(), leaseholdRueidis())
		for i := range all {
			all[i].name += label
		}
		_, err := b.compare(t, all, b.crowds, func(_ int, c contender, key string) ([]float64, error) {
			procs, err := b.openAll(slices.Repeat([]contender{c}, n), settings{ttl: outlast})
			if err != nil {
				return nil, err
			}
			defer closeAll(procs)
			if _, err := b.crowdOfPairs(ctx, goroutines, key+":warm", ownKey, procs...); err != nil {
				return nil, err
			}
			var w *work
			l, err := b.loadOf(c, func() (err error) {
				w, err = b.crowdOfPairs(ctx, goroutines, key, ownKey, procs...)
				return err
			})
			us := micros(l.cpu) / w.pairs
			return []float64{us, 1e6 / us}, err
		})
		return err
	}
	for _, n := range []int{1, 4, 16} {
		if err := compare(fmt.Sprintf(", processes: %d", n), n); err != nil {
			return nil, err
		}
	}
	if err := b.populate(ctx); err != nil {
		return nil, err
	}
	return t, compare(fmt.Sprintf(", 4, next to %d keys", b.keys), 4)
}

// populate makes keys that have no relation to locks.
func (b *bench) populate(ctx context.Context) error {
	const batch = 10_000
	for start := 0; start < b.keys; start += batch {
		pipe := b.srv.Client().Pipeline()
		for i := start; i < min(start+batch, b.keys); i++ {
			pipe.Set(ctx, "somebody's:"+strconv.Itoa(i), "something", 0)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
