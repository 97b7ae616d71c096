package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// bareClient is a Redis client with the calls of the contenders without a library.
type bareClient struct {
	set    func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	del    func(ctx context.Context, key, value string) (int64, error)
	script func(source string) script
	// listen subscribes to a channel. It is called once at most.
	listen func(channel string, wake func(message string)) error
	close  func()
}

type script func(ctx context.Context, keys, args []string) (int64, error)

// released returns the error of a release, or errLost if the release did not find the lock.
func released(found int64, err error) error {
	if err == nil && found != 1 {
		return errLost
	}
	return err
}

const deleteIfMine = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

var (
	// errBusy is the answer of a bare client, which does not wait.
	errBusy = errors.New("busy")
	// errLost is the answer of a release that came too late.
	errLost = errors.New("lost")
)

func bareGoRedis(addr string) *bareClient {
	client := redis.NewClient(&redis.Options{Addr: addr})
	del := redis.NewScript(deleteIfMine)
	unsubscribe := func() error { return nil }
	return &bareClient{
		set: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			return client.SetNX(ctx, key, value, ttl).Result()
		},
		del: func(ctx context.Context, key, value string) (int64, error) {
			return del.Run(ctx, client, []string{key}, value).Int64()
		},
		script: func(source string) script {
			s := redis.NewScript(source)
			return func(ctx context.Context, keys, args []string) (int64, error) {
				return s.Run(ctx, client, keys, args).Int64()
			}
		},
		listen: func(channel string, wake func(string)) error {
			sub := client.Subscribe(context.Background(), channel)
			unsubscribe = sub.Close
			if _, err := sub.Receive(context.Background()); err != nil {
				return err
			}
			go func() {
				for m := range sub.Channel() {
					wake(m.Payload)
				}
			}()
			return nil
		},
		close: func() {
			_ = unsubscribe()
			_ = client.Close()
		},
	}
}

func bareRueidis(addr string) *bareClient {
	client := need(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true}))
	del := rueidis.NewLuaScript(deleteIfMine)
	unsubscribe := func() {}
	return &bareClient{
		set: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			err := client.Do(ctx, client.B().Set().Key(key).Value(value).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return false, nil
			}
			return err == nil, err
		},
		del: func(ctx context.Context, key, value string) (int64, error) {
			return del.Exec(ctx, client, []string{key}, []string{value}).AsInt64()
		},
		script: func(source string) script {
			s := rueidis.NewLuaScript(source)
			return func(ctx context.Context, keys, args []string) (int64, error) {
				return s.Exec(ctx, client, keys, args).AsInt64()
			}
		},
		listen: func(channel string, wake func(string)) error {
			var sub rueidis.DedicatedClient
			sub, unsubscribe = client.Dedicate()
			sub.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { wake(m.Message) }})
			return sub.Do(context.Background(), sub.B().Subscribe().Channel(channel).Build()).Error()
		},
		close: func() {
			unsubscribe()
			client.Close()
		},
	}
}

const renewIfMine = `local n = 0
for i, key in ipairs(KEYS) do
  if redis.call("GET", key) == ARGV[i + 1] then n = n + redis.call("PEXPIRE", key, ARGV[1]) end
end
return n`

// rawGoRedis is the simplest possible lock: SET NX PX and a script that
// compares and deletes, by hand.
func rawGoRedis() contender { return rawOn("bare go-redis", goRedisClient, bareGoRedis) }

// rawRueidis is the same through rueidis.
func rawRueidis() contender { return rawOn("bare rueidis", rueidisClient, bareRueidis) }

func rawOn(name, client string, connect func(addr string) *bareClient) contender {
	return contender{name: name, client: client, kind: limit, wire: []string{"set", "evalsha", "eval"},
		open: func(addr string, s settings) process {
			r := &raw{bareClient: connect(addr), s: s, stop: make(chan struct{})}
			if s.renew {
				r.live = make(map[string]string)
				r.done.Go(func() { r.renewAll(r.script(renewIfMine)) })
			}
			return r
		}}
}

type raw struct {
	*bareClient
	s    settings
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	live map[string]string // value by key, if leases are renewed
}

func (r *raw) Lock(ctx context.Context, key string) (held, error) {
	value := rand.Text()
	ok, err := r.set(ctx, key, value, r.s.ttl)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errBusy
	}
	if r.s.renew {
		r.mu.Lock()
		r.live[key] = value
		r.mu.Unlock()
	}
	return releaser(func() error {
		if r.s.renew {
			r.mu.Lock()
			delete(r.live, key)
			r.mu.Unlock()
		}
		return released(r.del(context.Background(), key, value))
	}), nil
}

// renewAll renews all leases three times per TTL, 100 keys to a script.
func (r *raw) renewAll(renew script) {
	tick := time.NewTicker(r.s.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
		}
		const batch = 100
		var keys []string
		args := []string{strconv.FormatInt(r.s.ttl.Milliseconds(), 10)}
		r.mu.Lock()
		for key, value := range r.live {
			keys, args = append(keys, key), append(args, value)
		}
		r.mu.Unlock()
		for start := 0; start < len(keys); start += batch {
			end := min(start+batch, len(keys))
			some := append([]string{args[0]}, args[start+1:end+1]...)
			_, _ = renew(context.Background(), keys[start:end], some) // a release may have come before
		}
	}
}

func (r *raw) Close() {
	close(r.stop)
	r.done.Wait()
	r.close()
}

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

func queueOn(name, client string, connect func(addr string) *bareClient) contender {
	return contender{name: name, client: client, kind: limit, wire: []string{"evalsha", "eval"},
		open: func(addr string, s settings) process {
			bare := connect(addr)
			q := &queue{
				bareClient: bare, acquire: bare.script(queueAcquire), release: bare.script(queueRelease),
				s: s, channel: "queue:" + rand.Text(), waiters: make(map[string]chan struct{}),
			}
			check(bare.listen(q.channel, q.wake))
			return q
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
	return releaser(func() error {
		return released(q.release(context.Background(), []string{key, key + ":queue"}, []string{id, q.ttl()}))
	}), nil
}

func (q *queue) Close() { q.close() }
