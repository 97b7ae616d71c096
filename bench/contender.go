package main

import (
	"context"
	"time"
)

// contender is one way to lock: a library, or a bare client that does
// the same work without a library.
type contender struct {
	name string
	kind kind
	// client is the client library in use. It decides which server is needed.
	client string
	// wire are the commands that it sends. Commands of its scripts are counted under
	// other names, so that a sum over wire counts each only once.
	wire []string
	// arrival bounds the time until a caller has its place in the queue, if
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

// load returns the work that the server of c has done so far.
func (b *bench) load(ctx context.Context, c contender) (load, error) {
	if c.client == etcdClient {
		return b.etcd.load(ctx)
	}
	return b.srv.load(ctx)
}

// bare returns the values of the bare client that c uses.
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

// kind is the role of a contender in the comparison.
type kind uint8

const (
	peer  kind = iota
	limit      // a bare client
	ours
)

// settings are the requirements of an experiment, the same for all contenders.
type settings struct {
	ttl time.Duration
	// poll is the pause between two tries of a library that waits by trying;
	// 0 means its default, or its recommendation.
	poll time.Duration
	// waiters is how many of a process may want one lock at once. etcd needs a
	// session for each.
	waiters int
	// renew keeps leases alive, also where a library leaves that to the caller.
	renew bool
}

// process represents one process of a program: it has its own connections
// and shares only the server with other processes.
type process interface {
	// Lock waits for the key.
	Lock(ctx context.Context, key string) (held, error)
	// Crash leaves a lock without a release, as a holder that died does.
	Crash(ctx context.Context, key string, ttl time.Duration) error
	Close() error
}

// held is an acquired lock.
type held interface{ Release() error }

// releaser makes a function a held lock.
type releaser func() error

func (r releaser) Release() error { return r() }

// freeContenders take part if there are no waiters.
func freeContenders() []contender {
	return []contender{
		rawGoRedis(), rawRueidis(),
		leaseholdGoRedis(), leaseholdRueidis(),
		redsyncPeer(), redislockPeer(), rueidislockTuned(), rueidislockDefault(), etcdPeer(),
	}
}

// waitingContenders take part if there are many waiters. The limit is a queue without a
// library.
func waitingContenders() []contender {
	return []contender{
		queueGoRedis(), queueRueidis(),
		leaseholdGoRedis(), leaseholdRueidis(),
		redsyncPeer(), polling(redsyncPeer()), redislockPeer(), polling(redislockPeer()),
		rueidislockTuned(), rueidislockDefault(), etcdPeer(),
	}
}

// polling returns c with a try every millisecond.
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
