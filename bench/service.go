package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
)

const (
	serviceCrowd   = 64 // connections or goroutines
	serviceWaiters = 20
	serviceTurns   = 20
	// serviceSlices is how much longer than in other experiments a contender is measured at a
	// time: a crowd on sockets needs a while until it runs evenly.
	serviceSlices = 3
)

// service measures the HTTP service, compared with the library on the store of
// the service, with the library over the service, and with the lock service
// of etcd. A handler of net/http that only calls the driver shows the cost of
// HTTP itself. All of them run in this process, except etcd's server.
func service(ctx context.Context, b *bench) (*table, error) {
	addr, stop, err := startService(b.srv.addr)
	if err != nil {
		return nil, err
	}
	defer stop()
	floor, stopFloor, err := startFloor(b.srv.addr)
	if err != nil {
		return nil, err
	}
	defer stopFloor()
	all := b.pick([]contender{
		leaseholdRueidis(),
		rawHTTPClient("bare net/http handler on the driver", limit, floor, ""),
		rawHTTPClient("the service itself", ours, addr, "?forbidMs=0"), // the query of a library that has no requests under way
		rawHTTPClient("the service itself, ids remembered", ours, addr, ""),
		leaseholdOn("Leasehold over HTTP", rueidisClient, func(string) (driver.Driver, error) { return httpdriver.Open("http://" + addr) }),
		etcdLockService(), etcdLockGateway(),
	})
	longer := *b
	longer.slice *= serviceSlices
	rounds, err := longer.serviceRounds(ctx, all)
	if err != nil {
		return nil, err
	}
	t := newTable(fmt.Sprintf("HTTP service: a free lock; %d connections or goroutines, each its own; %d waiters, hold 1 ms, served once each; two that take turns",
		serviceCrowd, serviceWaiters),
		column{Name: "free: p50 µs", Digits: 0}, column{Name: "pairs/s", Digits: 0}, column{Name: "× etcd's lock service", Digits: 1, AtLeast: 2},
		column{Name: "CPU here, µs per pair", Digits: 1}, column{Name: "CPU of the server, µs per pair", Digits: 1},
		column{Name: "drain: total ms", Digits: 1}, column{Name: "hand-over: p50 ms", Digits: 2, AtMost: 2}, column{Name: "p90 ms", Digits: 2})
	var other []float64 // the fastest of the other services
	for i, c := range all {
		if c.client == etcdClient && (other == nil || median(rounds[i].rate) > median(other)) {
			other = rounds[i].rate
		}
	}
	for i, c := range all {
		r := rounds[i]
		t.add(c, r.free, r.rate, ratios(r.rate, other), r.here, r.server, r.drain, r.turn, r.late)
	}
	return t, nil
}

// serviceFigures are the figures of one contender, by rounds.
type serviceFigures struct{ free, rate, here, server, drain, turn, late []float64 }

func (b *bench) serviceRounds(ctx context.Context, all []contender) ([]serviceFigures, error) {
	procs, err := b.openAll(all, settings{ttl: outlast})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	waiters, err := b.openAll(all, settings{ttl: outlast, waiters: 2})
	if err != nil {
		return nil, err
	}
	defer closeAll(waiters)
	rounds := make([]serviceFigures, len(all))
	for round := range b.rounds + 1 {
		for i, c := range all {
			f := &rounds[i]
			if round == 0 {
				f = new(serviceFigures) // this round warms up
			}
			key := fmt.Sprintf("service:%d:%d", i, round)
			err := f.measureFree(ctx, b, c, procs[i], key)
			if err == nil && c.kind != limit { // the bare handler cannot wait
				err = f.measureWaits(ctx, b, c, waiters[i], key)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return rounds, nil
}

// measureFree measures locks without contention: one at a time, and many.
func (f *serviceFigures) measureFree(ctx context.Context, b *bench, c contender, p process, key string) error {
	took, err := b.pairs(ctx, p, key, nil)
	if err != nil {
		return err
	}
	before, err := b.load(ctx, c)
	if err != nil {
		return err
	}
	here := processCPU()
	w, err := b.crowdOfPairs(ctx, p, serviceCrowd, key, ownKey)
	here = processCPU() - here
	if err != nil {
		return err
	}
	after, err := b.load(ctx, c)
	if err != nil {
		return err
	}
	pairs := float64(w.pairs)
	f.free, f.rate = append(f.free, median(each(took, micros))), append(f.rate, w.rate())
	f.here, f.server = append(f.here, micros(here)/pairs), append(f.server, micros(after.cpu-before.cpu)/pairs)
	return nil
}

// measureWaits measures locks that are handed over.
func (f *serviceFigures) measureWaits(ctx context.Context, b *bench, c contender, p process, key string) error {
	r, err := drainOnce(ctx, b, c, serviceWaiters, key+":drain")
	if err != nil {
		return err
	}
	total := millis(r.took)
	if r.hung > 0 {
		total = math.NaN()
	}
	took, err := b.takeTurns(ctx, p, key+":turns", serviceTurns)
	if err != nil {
		return err
	}
	turns := each(took, millis)
	f.drain, f.turn, f.late = append(f.drain, total), append(f.turn, median(turns)), append(f.late, quantile(turns, 0.9))
	return nil
}

// takeTurns makes two goroutines take turns with one lock. It returns the times from
// before the release by one until the other had the lock.
func (b *bench) takeTurns(ctx context.Context, p process, key string, n int) (took []time.Duration, err error) {
	type grant struct {
		held
		at  time.Time
		err error
	}
	next := make(chan grant, 1)
	now, err := p.Lock(ctx, key)
	for range n {
		if err != nil {
			return nil, err
		}
		go func() {
			h, err := p.Lock(ctx, key)
			next <- grant{h, time.Now(), err}
		}()
		time.Sleep(b.settle / 20) // it waits by then
		start := time.Now()
		released := now.Release()
		g := <-next
		took = append(took, g.at.Sub(start))
		now, err = g.held, errors.Join(released, g.err)
	}
	if err != nil {
		return nil, err
	}
	return took, now.Release()
}
