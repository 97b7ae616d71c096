package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockPeer is bsm/redislock with the retry of its README: each 100 ms. Without a
// retry it does not wait at all.
func redislockPeer() contender {
	return contender{name: "redislock", client: goRedisClient, wire: []string{"evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		if s.poll == 0 {
			s.poll = 100 * time.Millisecond
		}
		return &redislockProcess{client, redislock.New(client), s}, nil
	}}
}

type redislockProcess struct {
	client *redis.Client
	locks  *redislock.Client
	s      settings
}

func (p *redislockProcess) Lock(ctx context.Context, key string) (held, error) {
	l, err := p.locks.Obtain(ctx, key, p.s.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(p.s.poll)})
	if err != nil {
		return nil, err
	}
	if p.s.renew {
		return keepAlive(redislockHeld{l}, p.s.ttl, func() { _ = l.Refresh(context.Background(), p.s.ttl, nil) }), nil
	}
	return redislockHeld{l}, nil
}

func (p *redislockProcess) Crash(ctx context.Context, key string, ttl time.Duration) error {
	return p.client.Set(ctx, key, "crashed", ttl).Err()
}

func (p *redislockProcess) Close() error { return p.client.Close() }

type redislockHeld struct{ l *redislock.Lock }

func (h redislockHeld) Release() error { return h.l.Release(context.Background()) }
