package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

// quorumNodes is the number of independent servers of a quorum.
const quorumNodes = 3

// quorum measures a free lock on a majority of servers: with all of them, and
// with one that takes connections and requests and never answers.
func quorum(ctx context.Context, b *bench) (*table, error) {
	nodes, addrs, err := startServers(ctx, quorumNodes)
	if err != nil {
		return nil, err
	}
	defer closeServers(nodes)
	all := b.pick([]contender{quorumRaw(addrs), quorumLeasehold("Leasehold, go-redis", addrs, openGoRedis), quorumLeasehold("Leasehold, rueidis", addrs, openRueidis), quorumRedsync(addrs)})
	procs, err := b.openAll(all, settings{ttl: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	p50, one, worst := grid(all), grid(all), grid(all)
	for round := range b.crowds + 1 { // the first one warms up
		for i, p := range procs {
			took, err := b.pairs(ctx, p, fmt.Sprintf("quorum:%d:%d", i, round), nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			if round > 0 {
				p50[i] = append(p50[i], median(each(took, millis)))
			}
		}
	}
	hole := nodes[quorumNodes-1].cmd.Process
	if err := hole.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	defer hole.Signal(syscall.SIGCONT) //nolint:errcheck // it is killed next
	for round := range b.crowds {
		for i, p := range procs {
			took, err := b.holedPairs(ctx, p, fmt.Sprintf("quorum:%d:%d:hole", i, round))
			if err != nil {
				if err := excuse(all[i], err); err != nil {
					return nil, err
				}
			}
			ms := each(took, millis)
			one[i], worst[i] = append(one[i], median(ms)), append(worst[i], quantile(ms, 1))
		}
	}
	t := newTable(fmt.Sprintf("Quorum of %d servers: lock and unlock, one goroutine", quorumNodes),
		column{Name: "all there: p50 ms", Digits: 2}, column{Name: "× limit", Digits: 2},
		column{Name: "one black-holed: p50 ms", Digits: 2, AtMost: 10}, column{Name: "worst ms", Digits: 0})
	least := best(all, p50, 1)
	for i, c := range all {
		t.add(c, p50[i], ratios(p50[i], least), one[i], worst[i])
	}
	return t, nil
}

// startServers starts independent servers.
func startServers(ctx context.Context, n int) (nodes []*server, addrs []string, err error) {
	for range n {
		srv, err := startServer(ctx)
		if err != nil {
			closeServers(nodes)
			return nil, nil, err
		}
		nodes, addrs = append(nodes, srv), append(addrs, srv.addr)
	}
	return nodes, addrs, nil
}

func closeServers(nodes []*server) {
	for _, srv := range nodes {
		srv.close()
	}
}

// holedPairs returns the pairs of some slices, so that the first, which may detect that
// a node is silent, is not the median; but of no more time than a second.
func (b *bench) holedPairs(ctx context.Context, p process, key string) (took []time.Duration, err error) {
	start := time.Now()
	for n := 0; n < 4 && err == nil && time.Since(start) < time.Second; n++ {
		took, err = b.pairs(ctx, p, key, took)
	}
	return took, err
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
	return contender{name: "redsync", client: "quorum", open: func(_ string, s settings) (process, error) {
		var pools []syncredis.Pool
		for _, addr := range addrs {
			pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
		}
		rs := redsync.New(pools...)
		return alone(func(ctx context.Context, key string) (held, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(s.ttl))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return redsyncHeld{m}, nil
		}), nil
	}}
}

// quorumRaw asks all servers at once and continues when two have agreed: the simplest
// possible quorum, without a token, and without a repair of the third
// server.
func quorumRaw(addrs []string) contender {
	return contender{name: "bare rueidis", client: "quorum", kind: limit, open: func(_ string, s settings) (process, error) {
		var nodes []process
		for _, addr := range addrs {
			p, err := rawRueidis().open(addr, s)
			if err != nil {
				closeAll(nodes)
				return nil, err
			}
			nodes = append(nodes, p)
		}
		return alone(func(ctx context.Context, key string) (held, error) {
			value := rand.Text()
			granted := majority(nodes, func(r *raw) (bool, error) { return r.set(ctx, key, value, s.ttl) })
			if granted != nil {
				return nil, granted
			}
			return releaser(func() error {
				return majority(nodes, func(r *raw) (bool, error) {
					n, err := r.del(context.Background(), key, value)
					return n == 1, err
				})
			}), nil
		}), nil
	}}
}

// majority waits until most nodes have agreed, or can no longer agree.
func majority(nodes []process, ask func(*raw) (bool, error)) error {
	answers := make(chan error, len(nodes))
	for _, p := range nodes {
		go func() {
			ok, err := ask(p.(*raw))
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
