package main

import (
	"context"
	"time"
)

// contender is one way to take a lock: a library, or a bare client that does
// the same work without one.
type contender struct {
	name string
	kind kind
	// client is the client that it stands on, which says what server it needs.
	client string
	// wire are the commands that it sends. What its scripts call counts under
	// other names, so that a sum over these counts nothing twice.
	wire []string
	// arrival is how long it takes at most until who calls has its place, where
	// that is not at once.
	arrival time.Duration
	open    func(addr string, s settings) (process, error)
}

// open opens one process of c on the server that it needs.
func (b *bench) open(c contender, s settings) (process, error) {
	addr := b.srv.addr
	if c.client == etcdClient {
		e, err := b.etcdServer()
		if err != nil {
			return nil, err
		}
		addr = e.addr
	}
	if c.client == postgresClient {
		p, err := b.postgresServer(context.Background())
		if err != nil {
			return nil, err
		}
		addr = p.url
	}
	return c.open(addr, s)
}

// load is what the server of c has done so far.
func (b *bench) load(ctx context.Context, c contender) (load, error) {
	if c.client == etcdClient {
		return b.etcd.load(ctx)
	}
	return b.srv.load(ctx)
}

// bare returns the values of the bare client that c stands on.
func bare(all []contender, values [][]float64, c contender) []float64 {
	for i, o := range all {
		if o.kind == limit && o.client == c.client {
			return values[i]
		}
	}
	return nil
}

const (
	goRedisClient = "go-redis"
	rueidisClient = "rueidis"
	etcdClient    = "etcd"

	postgresClient = "postgres"
)

// kind tells what a contender is compared as.
type kind uint8

const (
	peer  kind = iota
	limit      // a bare client
	ours
)

// settings are what an experiment asks of all contenders alike.
type settings struct {
	ttl time.Duration
	// poll is the pause between two tries of a library that waits by trying;
	// 0 is what it does, or recommends, by itself.
	poll time.Duration
	// waiters is how many of a process may want one lock at once. etcd needs a
	// session for each.
	waiters int
	// renew keeps leases alive, also where a library leaves that to the caller.
	renew bool
}

// process stands for one process of a program: it has connections of its own
// and shares nothing with others but the server.
type process interface {
	// Lock waits for the key.
	Lock(ctx context.Context, key string) (held, error)
	// Crash leaves the lock of a holder behind that is gone without a word.
	Crash(ctx context.Context, key string, ttl time.Duration) error
	Close() error
}

// held is a lock that was taken.
type held interface{ Release() error }

// releaser makes a held lock of a function.
type releaser func() error

func (r releaser) Release() error { return r() }

// freeContenders take part where nobody waits.
func freeContenders() []contender {
	return []contender{
		rawGoRedis(), rawRueidis(),
		leaseholdGoRedis(), leaseholdRueidis(),
		redsyncPeer(), redislockPeer(), rueidislockTuned(), rueidislockDefault(), etcdPeer(),
	}
}

// waitingContenders take part where many wait. The limit is a queue without a
// library around it.
func waitingContenders() []contender {
	return []contender{
		queueGoRedis(), queueRueidis(),
		leaseholdGoRedis(), leaseholdRueidis(),
		redsyncPeer(), polling(redsyncPeer()), redislockPeer(), polling(redislockPeer()),
		rueidislockTuned(), rueidislockDefault(), etcdPeer(),
	}
}

// polling is c trying every millisecond.
func polling(c contender) contender {
	open := c.open
	c.name += ", polling each ms"
	c.open = func(addr string, s settings) (process, error) {
		s.poll = time.Millisecond
		return open(addr, s)
	}
	return c
}

// openAll opens one process of every contender.
func (b *bench) openAll(all []contender, s settings) ([]process, error) {
	procs := make([]process, 0, len(all))
	for _, c := range all {
		p, err := b.open(c, s)
		if err != nil {
			closeAll(procs)
			return nil, err
		}
		procs = append(procs, p)
	}
	return procs, nil
}

func closeAll(procs []process) {
	for _, p := range procs {
		_ = p.Close()
	}
}
