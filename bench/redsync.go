package main

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncPeer is redsync over one server, with its own retry delay of 50 to
// 250 ms and without its limit of 32 tries.
func redsyncPeer() contender {
	return contender{name: "redsync", client: goRedisClient, wire: []string{"set", "evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		opts := []redsync.Option{redsync.WithExpiry(s.ttl), redsync.WithTries(math.MaxInt)}
		if s.poll > 0 {
			opts = append(opts, redsync.WithRetryDelay(s.poll))
		}
		return &redsyncProcess{client, redsync.New(goredis.NewPool(client)), opts, s}, nil
	}}
}

type redsyncProcess struct {
	client *redis.Client
	rs     *redsync.Redsync
	opts   []redsync.Option
	s      settings
}

func (p *redsyncProcess) Lock(ctx context.Context, key string) (held, error) {
	m := p.rs.NewMutex(key, p.opts...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	if p.s.renew {
		return keepAlive(redsyncHeld{m}, p.s.ttl, func() { _, _ = m.Extend() }), nil
	}
	return redsyncHeld{m}, nil
}

func (p *redsyncProcess) Crash(ctx context.Context, key string, ttl time.Duration) error {
	return p.client.Set(ctx, key, "crashed", ttl).Err()
}

func (p *redsyncProcess) Close() error { return p.client.Close() }

type redsyncHeld struct{ m *redsync.Mutex }

func (h redsyncHeld) Release() error {
	_, err := h.m.Unlock()
	return err
}

// renewed is a lock with a ticker that renews it, as users write it by hand if a library
// does not renew: one goroutine per lock.
type renewed struct {
	held
	stop chan struct{}
	done sync.WaitGroup
}

func keepAlive(h held, ttl time.Duration, extend func()) held {
	r := &renewed{held: h, stop: make(chan struct{})}
	r.done.Go(func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				extend()
			case <-r.stop:
				return
			}
		}
	})
	return r
}

func (r *renewed) Release() error {
	close(r.stop)
	r.done.Wait()
	return r.held.Release()
}
