package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// quorumNodes is the number of independent servers of a quorum.
const quorumNodes = 3

// quorum measures a free lock on a majority of servers: with all of them, and
// with one that takes connections and requests and never answers.
func quorum(ctx context.Context, b *bench) *table {
	var addrs []string
	var hole *redistest.Server
	for range quorumNodes {
		hole = redistest.Start(b)
		addrs = append(addrs, hole.Addr())
	}
	all := b.pick(quorumRaw(addrs), quorumLeasehold("Leasehold, go-redis", addrs, openGoRedis),
		quorumLeasehold("Leasehold, rueidis", addrs, openRueidis), quorumRedsync(addrs))
	procs := b.openAll(all, halfMinute)
	t := newTable(fmt.Sprintf("Quorum of %d servers: lock and unlock, one goroutine", quorumNodes),
		column{Name: "all there: p50 ms", Digits: 2}, column{Name: "× limit", Digits: 2, by: least})
	b.compareOn(t, all, procs, b.crowds, func(_ contender, p process, key string) []float64 {
		return []float64{median(each(b.pairs(ctx, p, key, nil), millis))}
	})
	hole.Stop()
	holed := newTable("", column{Name: "one black-holed: p50 ms", Digits: 2, AtMost: 10}, column{Name: "worst ms"})
	t.join(b.compare(holed, all, b.crowds, func(i int, _ contender, key string) []float64 {
		ms := each(b.holedPairs(ctx, procs[i], key), millis)
		return []float64{median(ms), quantile(ms, 1)}
	}))
	return t
}

// holedPairs returns the pairs of some slices, so that the first, which may detect that
// a node is silent, is not the median; but of no more time than a second.
func (b *bench) holedPairs(ctx context.Context, p process, key string) (took []time.Duration) {
	start := time.Now()
	for n := 0; n < 4 && time.Since(start) < time.Second; n++ {
		took = b.pairs(ctx, p, key, took)
	}
	return took
}

func quorumLeasehold(name string, addrs []string, open func(addr string) (driver.Driver, error)) contender {
	return leaseholdOn(name, "quorum", func(string) (driver.Driver, error) {
		var nodes []driver.Driver
		for _, addr := range addrs {
			d, err := open(addr)
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, d)
		}
		return quorumdriver.New(nodes)
	})
}

// quorumRedsync is redsync. It asks all servers and waits for the slowest.
func quorumRedsync(addrs []string) contender {
	return contender{name: "redsync", client: "quorum", open: func(_ string, s settings) process {
		var pools []syncredis.Pool
		for _, addr := range addrs {
			pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
		}
		return &functions{lock: redsyncLock(redsync.New(pools...), s, redsync.WithExpiry(s.ttl))}
	}}
}

// quorumRaw asks all servers at once and continues when two have agreed: the simplest
// possible quorum, without a token, and without a repair of the third
// server.
func quorumRaw(addrs []string) contender {
	return contender{name: "bare rueidis", client: "quorum", kind: limit, open: func(_ string, s settings) process {
		var nodes []*bareClient
		for _, addr := range addrs {
			nodes = append(nodes, bareRueidis(addr))
		}
		closeNodes := func() {
			for _, n := range nodes {
				n.close()
			}
		}
		return &functions{close: closeNodes, lock: func(ctx context.Context, key string) (held, error) {
			value := rand.Text()
			granted := majority(nodes, func(r *bareClient) (bool, error) { return r.set(ctx, key, value, s.ttl) })
			if granted != nil {
				return nil, granted
			}
			return releaser(func() error {
				return majority(nodes, func(r *bareClient) (bool, error) {
					n, err := r.del(context.Background(), key, value)
					return n == 1, err
				})
			}), nil
		}}
	}}
}

// majority waits until most nodes have agreed, or can no longer agree.
func majority(nodes []*bareClient, ask func(*bareClient) (bool, error)) error {
	answers := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() {
			ok, err := ask(n)
			if err == nil && !ok {
				err = errBusy
			}
			answers <- err
		}()
	}
	var no []string
	for yes := 0; yes <= len(nodes)/2; {
		if err := <-answers; err == nil {
			yes++
		} else if no = append(no, err.Error()); len(no) > len(nodes)/2 {
			return errors.New(strings.Join(no, "; "))
		}
	}
	return nil
}
