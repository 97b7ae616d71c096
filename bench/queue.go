package main

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The simplest possible queue: an acquire that finds the lock taken queues
// in the same step, and a release makes the next waiter the holder and
// notifies its process. Two commands per hand-over. It has no tickets that expire,
// no renewal, no token and no recovery from dead clients: it is a limit, not a lock.
const (
	queueAcquire = `if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return 1 end
redis.call("RPUSH", KEYS[2], ARGV[1] .. " " .. ARGV[3])
return 0`
	queueRelease = `if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
local next = redis.call("LPOP", KEYS[2])
if not next then return redis.call("DEL", KEYS[1]) end
local id, channel = string.match(next, "(%S+) (%S+)")
redis.call("SET", KEYS[1], id, "PX", ARGV[2])
redis.call("PUBLISH", channel, id)
return 1`
)

func queueGoRedis() contender {
	return contender{name: "bare queue, go-redis", client: goRedisClient, kind: limit, wire: []string{"evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		q := newQueue(s)
		acquire, release := redis.NewScript(queueAcquire), redis.NewScript(queueRelease)
		q.acquire = func(ctx context.Context, keys, args []string) (int64, error) {
			return acquire.Run(ctx, client, keys, args).Int64()
		}
		q.release = func(ctx context.Context, keys, args []string) (int64, error) {
			return release.Run(ctx, client, keys, args).Int64()
		}
		sub := client.Subscribe(context.Background(), q.channel)
		if _, err := sub.Receive(context.Background()); err != nil {
			return nil, err
		}
		q.close = func() error {
			_ = sub.Close()
			return client.Close()
		}
		go func() {
			for m := range sub.Channel() {
				q.wake(m.Payload)
			}
		}()
		return q, nil
	}}
}

func queueRueidis() contender {
	return contender{name: "bare queue, rueidis", client: rueidisClient, kind: limit, wire: []string{"evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return nil, err
		}
		q := newQueue(s)
		acquire, release := rueidis.NewLuaScript(queueAcquire), rueidis.NewLuaScript(queueRelease)
		q.acquire = func(ctx context.Context, keys, args []string) (int64, error) {
			return acquire.Exec(ctx, client, keys, args).AsInt64()
		}
		q.release = func(ctx context.Context, keys, args []string) (int64, error) {
			return release.Exec(ctx, client, keys, args).AsInt64()
		}
		hear, cancel := client.Dedicate()
		lost := hear.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { q.wake(m.Message) }})
		if err := hear.Do(context.Background(), hear.B().Subscribe().Channel(q.channel).Build()).Error(); err != nil {
			return nil, err
		}
		q.close = func() error {
			cancel()
			client.Close()
			<-lost //nolint:errcheck // it was lost because it is closed
			return nil
		}
		return q, nil
	}}
}

type queueScript func(ctx context.Context, keys, args []string) (int64, error)

type queue struct {
	s                settings
	channel          string
	acquire, release queueScript
	close            func() error

	mu      sync.Mutex
	waiters map[string]chan struct{}
}

func newQueue(s settings) *queue {
	return &queue{s: s, channel: "queue:" + rand.Text(), waiters: make(map[string]chan struct{})}
}

func (q *queue) wake(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if woken, ok := q.waiters[id]; ok {
		close(woken)
		delete(q.waiters, id)
	}
}

func (q *queue) ttl() string { return strconv.FormatInt(q.s.ttl.Milliseconds(), 10) }

func (q *queue) Lock(ctx context.Context, key string) (held, error) {
	id, woken := rand.Text(), make(chan struct{})
	q.mu.Lock()
	q.waiters[id] = woken
	q.mu.Unlock()
	granted, err := q.acquire(ctx, []string{key, key + ":queue"}, []string{id, q.ttl(), q.channel})
	if err == nil && granted == 0 {
		select {
		case <-woken:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	q.mu.Lock()
	delete(q.waiters, id)
	q.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return &queueHeld{q, key, id}, nil
}

// Crash implements [process]. A queue without expiry does not recover.
func (q *queue) Crash(context.Context, string, time.Duration) error { return errUnfit }

func (q *queue) Close() error { return q.close() }

type queueHeld struct {
	q       *queue
	key, id string
}

func (h *queueHeld) Release() error {
	n, err := h.q.release(context.Background(), []string{h.key, h.key + ":queue"}, []string{h.id, h.q.ttl()})
	if err == nil && n != 1 {
		err = errLost
	}
	return err
}
