package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/httpdriver"
	"github.com/leasehold-go/leasehold/server"
)

const (
	serviceCrowd = 64 // connections or goroutines
	serviceTurns = 20
	// serviceSlices is how much longer than in other experiments a contender is measured at a
	// time: a crowd on sockets needs a while until it runs evenly.
	serviceSlices = 3
)

// service measures the HTTP service, compared with the library on the store of
// the service, with the library over the service, and with the lock service
// of etcd. A handler of net/http that only calls the driver shows the cost of
// HTTP itself. All of them run in this process, except etcd's server.
func service(ctx context.Context, b *bench) *table {
	srv := need(server.New(need(openRueidis(b.srv.Addr()))))
	b.Cleanup(func() { _ = srv.Close() })
	addr := b.listen(func(l net.Listener) error { return srv.Serve(l, nil) })
	store := need(openRueidis(b.srv.Addr()))
	b.Cleanup(func() { _ = store.Close() })
	floor := &http.Server{ReadHeaderTimeout: time.Second, Handler: floor(store)}
	b.Cleanup(func() { _ = floor.Close() })
	all := b.pick(
		leaseholdRueidis(),
		rawHTTPClient("bare net/http handler on the driver", limit, b.listen(floor.Serve), ""),
		rawHTTPClient("the service itself", ours, addr, "?forbidMs=0"), // the query of a library that has no requests under way
		rawHTTPClient("the service itself, ids remembered", ours, addr, ""),
		leaseholdOn("Leasehold over HTTP", rueidisClient, func(string) (driver.Driver, error) { return httpdriver.Open("http://" + addr) }),
		etcdLockService(), etcdLockGateway(),
	)
	t := newTable(fmt.Sprintf("HTTP service: a free lock; %d connections or goroutines, each its own; two that take turns", serviceCrowd),
		column{Name: "free: p50 µs"}, column{Name: "pairs/s"},
		column{Name: "× etcd's lock service", Digits: 1, AtLeast: 2, by: fastestEtcd},
		column{Name: "CPU here, µs per pair", Digits: 1}, column{Name: "CPU of the server, µs per pair", Digits: 1},
		column{Name: "hand-over: p50 ms", Digits: 2, AtMost: 2}, column{Name: "p90 ms", Digits: 2})
	slice := b.slice
	b.slice *= serviceSlices
	defer func() { b.slice = slice }()
	return b.compareOpen(t, all, settings{ttl: outlast}, func(c contender, p process, key string) []float64 {
		took := b.pairs(ctx, p, key, nil)
		var w *work
		var here time.Duration
		l := b.loadOf(c, func() {
			here = processCPU()
			w = b.crowdOfPairs(ctx, serviceCrowd, key, ownKey, p)
			here = processCPU() - here
		})
		figures := []float64{median(each(took, micros)), w.rate(), micros(here) / w.pairs, micros(l.cpu) / w.pairs}
		if c.kind == limit { // the bare handler cannot wait
			return append(figures, math.NaN(), math.NaN())
		}
		turns := b.takeTurns(ctx, c, key+":turns")
		return append(figures, median(turns), quantile(turns, 0.9))
	})
}

// listen serves on a port of its own, and returns its address.
func (b *bench) listen(serve func(net.Listener) error) string {
	l := need(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = serve(l) }() // the error is only that it was shut down
	return l.Addr().String()
}

// floor serves a lock by the simplest possible handler of net/http. It does
// not wait, and does not check requests.
func floor(store driver.Driver) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		var err error
		status := http.StatusNoContent
		if r.Method == http.MethodDelete {
			_, err = store.Release(r.Context(), driver.Ref{Key: parts[3], ID: parts[5]})
		} else {
			status = http.StatusCreated
			body, _ := io.ReadAll(r.Body)
			id := strings.Split(string(body), `"`)[3]
			_, err = store.Acquire(r.Context(), driver.Request{Key: parts[3], ID: id, Since: time.Now(), TTL: outlast})
		}
		if err != nil {
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	}
}

// takeTurns makes two goroutines take turns with one lock. It returns the times from
// before the release by one until the other had the lock, in ms.
func (b *bench) takeTurns(ctx context.Context, c contender, key string) (took []float64) {
	p := b.open(c, settings{ttl: outlast, waiters: 2})
	type grant struct {
		held
		at  time.Time
		err error
	}
	next := make(chan grant, 1)
	now := need(p.Lock(ctx, key))
	for range serviceTurns {
		go func() {
			h, err := p.Lock(ctx, key)
			next <- grant{h, time.Now(), err}
		}()
		time.Sleep(b.settle / 20) // it waits by then
		start := time.Now()
		released := now.Release()
		g := <-next
		check(errors.Join(released, g.err))
		took = append(took, millis(g.at.Sub(start)))
		now = g.held
	}
	check(now.Release())
	return took
}
