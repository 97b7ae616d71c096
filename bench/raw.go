package main

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"time"
)

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

func rawOn(name, client string, connect func(addr string) (*bareClient, error)) contender {
	return contender{name: name, client: client, kind: limit, wire: []string{"set", "evalsha", "eval"},
		open: func(addr string, s settings) (process, error) {
			bare, err := connect(addr)
			if err != nil {
				return nil, err
			}
			r := &raw{bareClient: bare, s: s, stop: make(chan struct{})}
			if s.renew {
				r.live = make(map[string]string)
				r.done.Go(func() { r.renewAll(bare.script(renewIfMine)) })
			}
			return r, nil
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
	return &rawHeld{r, key, value}, nil
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
