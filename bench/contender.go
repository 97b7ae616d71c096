package main

import (
	"context"
	"slices"
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
	// open opens a process. It uses [check].
	open func(addr string, s settings) process
}

const (
	goRedisClient  = "go-redis"
	rueidisClient  = "rueidis"
	etcdClient     = "etcd"
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

// halfMinute is the TTL of locks that are not renewed in an experiment.
var halfMinute = settings{ttl: 30 * time.Second}

// process represents one process of a program: it has its own connections
// and shares only the server with other processes.
type process interface {
	// Lock waits for the key.
	Lock(ctx context.Context, key string) (held, error)
	Close()
}

// crasher is a process that can leave a lock without a release, as a holder that died does.
type crasher interface {
	Crash(ctx context.Context, key string, ttl time.Duration) error
}

// held is an acquired lock.
type held interface{ Release() error }

// releaser makes a function a held lock.
type releaser func() error

func (r releaser) Release() error { return r() }

// lockFunc waits for the key.
type lockFunc func(ctx context.Context, key string) (held, error)

// functions is a process that is made of functions.
type functions struct {
	lock  lockFunc
	crash func(ctx context.Context, key string, ttl time.Duration) error
	close func() // may be nil
}

func (f *functions) Lock(ctx context.Context, key string) (held, error) { return f.lock(ctx, key) }

func (f *functions) Crash(ctx context.Context, key string, ttl time.Duration) error {
	return f.crash(ctx, key, ttl)
}

func (f *functions) Close() {
	if f.close != nil {
		f.close()
	}
}

// lockOnce locks and unlocks.
func lockOnce(ctx context.Context, p process, key string) error {
	h, err := p.Lock(ctx, key)
	if err != nil {
		return err
	}
	return h.Release()
}

// open opens one process of c on the server that it needs, until the end of the attempt.
func (b *bench) open(c contender, s settings) process {
	addr := b.srv.Addr()
	switch c.client {
	case etcdClient:
		addr = b.etcdServer().addr
	case postgresClient:
		addr = b.postgresServer().URL()
	}
	var p process
	if err := b.attempt(func() { p = c.open(addr, s) }); err != nil {
		b.Fatalf("open %s: %w", c.name, err)
	}
	b.Cleanup(p.Close)
	return p
}

// openAll opens one process of every contender.
func (b *bench) openAll(all []contender, s settings) []process {
	procs := make([]process, len(all))
	for i, c := range all {
		procs[i] = b.open(c, s)
	}
	return procs
}

// freeContenders returns the selected contenders for experiments without waiters.
func (b *bench) freeContenders() []contender {
	return b.pick(
		rawGoRedis(), rawRueidis(),
		leaseholdGoRedis(), leaseholdRueidis(),
		redsyncPeer(), redislockPeer(), rueidislockTuned(), rueidislockDefault(), etcdPeer(),
	)
}

// waitingContenders returns the selected contenders for experiments with many waiters. The limit is a
// queue without a library.
func (b *bench) waitingContenders() []contender {
	return b.pick(
		queueGoRedis(), queueRueidis(),
		leaseholdGoRedis(), leaseholdRueidis(),
		redsyncPeer(), polling(redsyncPeer()), redislockPeer(), polling(redislockPeer()),
		rueidislockTuned(), rueidislockDefault(), etcdPeer(),
	)
}

// pick returns the selected contenders.
func (b *bench) pick(all ...contender) []contender {
	return slices.DeleteFunc(all, func(c contender) bool { return !b.who.MatchString(c.name) })
}

// polling returns c with a try every millisecond.
func polling(c contender) contender {
	open := c.open
	c.name += ", polling each ms"
	c.open = func(addr string, s settings) process {
		s.poll = time.Millisecond
		return open(addr, s)
	}
	return c
}
