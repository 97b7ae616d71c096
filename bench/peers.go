package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// goRedisPeer is a library over go-redis.
func goRedisPeer(name string, wire []string, locker func(*redis.Client, settings) lockFunc) contender {
	return contender{name: name, client: goRedisClient, wire: wire, open: func(addr string, s settings) process {
		client := redis.NewClient(&redis.Options{Addr: addr})
		return &functions{
			lock: locker(client, s),
			crash: func(ctx context.Context, key string, ttl time.Duration) error {
				return client.Set(ctx, key, "crashed", ttl).Err()
			},
			close: func() { _ = client.Close() },
		}
	}}
}

// redsyncPeer is redsync over one server, with its own retry delay of 50 to
// 250 ms and without its limit of 32 tries.
func redsyncPeer() contender {
	return goRedisPeer("redsync", []string{"set", "evalsha", "eval"}, func(client *redis.Client, s settings) lockFunc {
		opts := []redsync.Option{redsync.WithExpiry(s.ttl), redsync.WithTries(math.MaxInt)}
		if s.poll > 0 {
			opts = append(opts, redsync.WithRetryDelay(s.poll))
		}
		return redsyncLock(redsync.New(goredis.NewPool(client)), s, opts...)
	})
}

func redsyncLock(rs *redsync.Redsync, s settings, opts ...redsync.Option) lockFunc {
	return func(ctx context.Context, key string) (held, error) {
		m := rs.NewMutex(key, opts...)
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		if s.renew {
			return keepAlive(redsyncHeld{m}, s.ttl, func() { _, _ = m.Extend() }), nil
		}
		return redsyncHeld{m}, nil
	}
}

type redsyncHeld struct{ m *redsync.Mutex }

func (h redsyncHeld) Release() error {
	_, err := h.m.Unlock()
	return err
}

// redislockPeer is bsm/redislock with the retry of its README: each 100 ms. Without a
// retry it does not wait at all.
func redislockPeer() contender {
	return goRedisPeer("redislock", []string{"evalsha", "eval"}, func(client *redis.Client, s settings) lockFunc {
		if s.poll == 0 {
			s.poll = 100 * time.Millisecond
		}
		locks := redislock.New(client)
		return func(ctx context.Context, key string) (held, error) {
			l, err := locks.Obtain(ctx, key, s.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(s.poll)})
			if err != nil {
				return nil, err
			}
			if s.renew {
				return keepAlive(redislockHeld{l}, s.ttl, func() { _ = l.Refresh(context.Background(), s.ttl, nil) }), nil
			}
			return redislockHeld{l}, nil
		}
	})
}

type redislockHeld struct{ l *redislock.Lock }

func (h redislockHeld) Release() error { return h.l.Release(context.Background()) }

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

// rueidislockTuned is rueidislock with the settings that its README recommends for one server.
func rueidislockTuned() contender {
	return rueidislockWith("rueidislock, tuned", 1, true)
}

// rueidislockDefault is rueidislock with its defaults: three keys for a lock.
func rueidislockDefault() contender {
	return rueidislockWith("rueidislock, defaults", 2, false)
}

func rueidislockWith(name string, majority int32, noLoop bool) contender {
	return contender{name: name, client: rueidisClient, wire: []string{"evalsha", "eval"},
		open: func(addr string, s settings) process {
			locker := need(rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
				KeyValidity:    s.ttl,
				ExtendInterval: s.ttl / 3,
				KeyMajority:    majority,
				NoLoopTracking: noLoop,
			}))
			return &functions{
				lock: func(ctx context.Context, key string) (held, error) {
					ctx, cancel, err := locker.WithContext(ctx, key)
					if err != nil {
						return nil, err
					}
					return releaser(func() error {
						err := ctx.Err()
						cancel()
						return err
					}), nil
				},
				crash: func(ctx context.Context, key string, ttl time.Duration) error {
					client := locker.Client()
					for i := range 2*majority - 1 {
						name := fmt.Sprintf("rueidislock:%d:%s", i, key)
						cmd := client.B().Set().Key(name).Value("crashed").PxMilliseconds(ttl.Milliseconds()).Build()
						if err := client.Do(ctx, cmd).Error(); err != nil {
							return err
						}
					}
					return nil
				},
				close: locker.Close,
			}
		}}
}
