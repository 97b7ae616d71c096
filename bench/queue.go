package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
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

func queueGoRedis() contender { return queueOn("bare queue, go-redis", goRedisClient, bareGoRedis) }

func queueRueidis() contender { return queueOn("bare queue, rueidis", rueidisClient, bareRueidis) }

func queueOn(name, client string, connect func(addr string) (*bareClient, error)) contender {
	return contender{name: name, client: client, kind: limit, wire: []string{"evalsha", "eval"},
		open: func(addr string, s settings) (process, error) {
			bare, err := connect(addr)
			if err != nil {
				return nil, err
			}
			q := &queue{
				bareClient: bare, acquire: bare.script(queueAcquire), release: bare.script(queueRelease),
				s: s, channel: "queue:" + rand.Text(), waiters: make(map[string]chan struct{}),
			}
			if err := bare.listen(q.channel, q.wake); err != nil {
				return nil, errors.Join(err, bare.close())
			}
			return q, nil
		}}
}

type queue struct {
	*bareClient
	acquire, release script
	s                settings
	channel          string

	mu      sync.Mutex
	waiters map[string]chan struct{}
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
