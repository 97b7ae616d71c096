package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// serverTime measures the cost of a free lock to the server, by the server's own count,
// while 16 goroutines keep it busy: an idle server has cold caches.
func serverTime(keys string) func(context.Context, *bench) (*table, error) {
	return func(ctx context.Context, b *bench) (*table, error) { return b.serverTime(ctx, keys) }
}

func (b *bench) serverTime(ctx context.Context, keys string) (*table, error) {
	all := slices.DeleteFunc(b.freeContenders(), func(c contender) bool { return c.client == etcdClient }) // it does not count time
	procs, err := b.openAll(all, settings{ttl: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)

	usec, calls := grid(all), grid(all)
	for round := range b.rounds + 1 {
		for i, p := range procs {
			before, err := b.srv.load(ctx)
			if err != nil {
				return nil, err
			}
			w, err := b.crowdOfPairs(ctx, p, 16, fmt.Sprintf("server:%d:%d", i, round), keys)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			after, err := b.srv.load(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				n, us := after.since(before, all[i].wire)
				usec[i] = append(usec[i], us/float64(w.pairs))
				calls[i] = append(calls[i], n/float64(w.pairs))
			}
		}
	}

	t := newTable("Server time of a free lock and unlock, with "+keys,
		column{Name: "µs", Digits: 1}, column{Name: "× limit", Digits: 2, AtMost: 2.5}, column{Name: "commands", Digits: 1})
	least := best(all, usec, 1)
	for i, c := range all {
		t.add(c, usec[i], ratios(usec[i], least), calls[i])
	}
	return t, nil
}
