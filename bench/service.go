package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
	httpserver "github.com/leasehold-go/leasehold/server"
)

// service measures the HTTP service beside the library on the store that the
// service stands on, by itself and with the library over it. The service runs in
// this process.
func service(ctx context.Context, b *bench) (*table, error) {
	const crowd, waiting, turns = 64, 20, 20
	addr, stop, err := startService(b.srv.addr)
	if err != nil {
		return nil, err
	}
	defer stop()
	over := leaseholdOn("Leasehold over HTTP", rueidisClient, func(string) (driver.Driver, error) { return httpdriver.New("http://" + addr) })
	all := b.pick([]contender{leaseholdRueidis(), rawService(addr), over})
	p50, rate, total, handed := grid(all), grid(all), grid(all), grid(all)
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
	for round := range b.rounds + 1 { // the first one warms up
		for i, c := range all {
			key := fmt.Sprintf("service:%d:%d", i, round)
			took, err := b.pairs(ctx, procs[i], key, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			w, err := b.crowdOfPairs(ctx, procs[i], crowd, key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			r, err := drainOnce(ctx, b, c, waiting, key+":drain")
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			h, err := b.takeTurns(ctx, waiters[i], key+":turns", turns)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round == 0 {
				continue
			}
			p50[i] = append(p50[i], median(each(took, micros)))
			rate[i], total[i] = append(rate[i], w.rate()), append(total[i], millis(r.took))
			handed[i] = append(handed[i], median(each(h, millis)))
		}
	}
	t := newTable(fmt.Sprintf("HTTP service: a free lock; %d connections or goroutines, each its own; %d waiters, hold 1 ms, served once each; two that take turns", crowd, waiting),
		column{Name: "free: p50 µs", Digits: 0}, column{Name: "pairs/s", Digits: 0}, column{Name: "% of the store's", Digits: 0, AtLeast: 50},
		column{Name: "drain: total ms", Digits: 1}, column{Name: "hand-over: p50 ms", Digits: 2, AtMost: 2})
	for i, c := range all {
		t.add(c, p50[i], rate[i], percent(ratios(rate[i], rate[0])), total[i], handed[i])
	}
	return t, nil
}

// takeTurns has two take turns with one lock, and returns how long it took each
// time from before the release of the one until the other one had the lock.
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

// startService serves a store on the server at addr.
func startService(redis string) (addr string, stop func(), err error) {
	store, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{redis}})
	if err != nil {
		return "", nil, err
	}
	srv, err := httpserver.New(store)
	if err != nil {
		return "", nil, errors.Join(err, store.Close())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, srv.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l, nil) // it says that the server was closed
	}()
	return l.Addr().String(), func() {
		_ = srv.Close()
		<-done
	}, nil
}
