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

// errBusy is the answer of a bare client, which does not wait.
var errBusy = errors.New("busy")

const (
	deleteIfMine = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
	renewIfMine  = `local n = 0
for i, key in ipairs(KEYS) do
  if redis.call("GET", key) == ARGV[i + 1] then n = n + redis.call("PEXPIRE", key, ARGV[1]) end
end
return n`
)

// rawGoRedis is the simplest possible lock: SET NX PX and a script that
// compares and deletes, by hand.
func rawGoRedis() contender {
	return contender{name: "bare go-redis", client: goRedisClient, kind: limit, wire: []string{"set", "evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		del, renew := redis.NewScript(deleteIfMine), redis.NewScript(renewIfMine)
		return newRaw(s, rawCommands{
			set: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return client.SetNX(ctx, key, value, ttl).Result()
			},
			del: func(ctx context.Context, key, value string) (int64, error) {
				return del.Run(ctx, client, []string{key}, value).Int64()
			},
			renew: func(ctx context.Context, keys, args []string) (int64, error) {
				return renew.Run(ctx, client, keys, args).Int64()
			},
			close: client.Close,
		}), nil
	}}
}

// rawRueidis is the same through rueidis.
func rawRueidis() contender {
	return contender{name: "bare rueidis", client: rueidisClient, kind: limit, wire: []string{"set", "evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return nil, err
		}
		del, renew := rueidis.NewLuaScript(deleteIfMine), rueidis.NewLuaScript(renewIfMine)
		return newRaw(s, rawCommands{
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
			renew: func(ctx context.Context, keys, args []string) (int64, error) {
				return renew.Exec(ctx, client, keys, args).AsInt64()
			},
			close: func() error { client.Close(); return nil },
		}), nil
	}}
}

type rawCommands struct {
	set   func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	del   func(ctx context.Context, key, value string) (int64, error)
	renew func(ctx context.Context, keys, args []string) (int64, error)
	close func() error
}

type raw struct {
	rawCommands
	s    settings
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	live map[string]string // value by key, if leases are renewed
}

func newRaw(s settings, c rawCommands) *raw {
	r := &raw{rawCommands: c, s: s, stop: make(chan struct{})}
	if s.renew {
		r.live = make(map[string]string)
		r.done.Go(r.renewAll)
	}
	return r
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
	return &rawHeld{r, key, value}, nil
}

// renewAll renews all leases three times per TTL, 100 keys to a script.
func (r *raw) renewAll() {
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
			_, _ = r.renew(context.Background(), keys[start:end], some) // a release may have come before
		}
	}
}

func (r *raw) Crash(ctx context.Context, key string, ttl time.Duration) error {
	_, err := r.set(ctx, key, "crashed", ttl)
	return err
}

func (r *raw) Close() error {
	close(r.stop)
	r.done.Wait()
	return r.close()
}

type rawHeld struct {
	r          *raw
	key, value string
}

func (h *rawHeld) Release() error {
	if h.r.s.renew {
		h.r.mu.Lock()
		delete(h.r.live, h.key)
		h.r.mu.Unlock()
	}
	n, err := h.r.del(context.Background(), h.key, h.value)
	if err == nil && n != 1 {
		err = errLost
	}
	return err
}

// errLost is the answer of a release that came too late.
var errLost = errors.New("lost")
