package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/httpdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
	httpserver "github.com/leasehold-go/leasehold/server"
)

// service measures the library over the HTTP service, beside the same on the
// store that the service stands on. The service runs in this process.
func service(ctx context.Context, b *bench) (*table, error) {
	const waiting = 20
	url, stop, err := startService(b.srv.addr)
	if err != nil {
		return nil, err
	}
	defer stop()
	over := leaseholdOn("Leasehold over HTTP", rueidisClient, func(string) (driver.Driver, error) { return httpdriver.New(url) })
	all := b.pick([]contender{leaseholdRueidis(), over})
	p50, rate, total := grid(all), grid(all), grid(all)
	procs, err := b.openAll(all, settings{ttl: outlast})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	for round := range b.crowds + 1 { // the first one warms up
		for i, c := range all {
			key := fmt.Sprintf("service:%d:%d", i, round)
			took, err := b.pairs(ctx, procs[i], key, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			w, err := b.crowdOfPairs(ctx, procs[i], 16, key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			r, err := drainOnce(ctx, b, c, waiting, key+":drain")
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round == 0 {
				continue
			}
			p50[i] = append(p50[i], median(each(took, micros)))
			rate[i], total[i] = append(rate[i], w.rate()), append(total[i], millis(r.took))
		}
	}
	t := newTable(fmt.Sprintf("HTTP service: a free lock; 16 goroutines, each its own; %d waiters, hold 1 ms, served once each", waiting),
		column{Name: "free: p50 µs", Digits: 0}, column{Name: "× the store", Digits: 1}, column{Name: "pairs/s", Digits: 0},
		column{Name: "drain: total ms", Digits: 1}, column{Name: "× the store's", Digits: 2})
	for i, c := range all {
		t.add(c, p50[i], ratios(p50[i], p50[0]), rate[i], total[i], ratios(total[i], total[0]))
	}
	return t, nil
}

// startService serves a store on the server at addr.
func startService(addr string) (url string, stop func(), err error) {
	store, err := rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}})
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
	return "http://" + l.Addr().String(), func() {
		_ = srv.Close()
		<-done
	}, nil
}
