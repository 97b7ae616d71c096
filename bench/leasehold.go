package main

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
)

// leaseholdGoRedis is this library on go-redis.
func leaseholdGoRedis() contender {
	return leaseholdOn("Leasehold, go-redis", goRedisClient, openGoRedis)
}

func openGoRedis(addr string) (driver.Driver, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close() // the driver uses its options, not the client
	return redisdriver.New(client)
}

// leaseholdRueidis is this library on rueidis.
func leaseholdRueidis() contender {
	return leaseholdOn("Leasehold, rueidis", rueidisClient, openRueidis)
}

func openRueidis(addr string) (driver.Driver, error) {
	return rueidisdriver.New(rueidis.ClientOption{InitAddress: []string{addr}})
}

func leaseholdOn(name, client string, open func(addr string) (driver.Driver, error), opts ...leasehold.Option) contender {
	return contender{name: name, client: client, kind: ours, wire: []string{"evalsha", "eval"},
		open: func(addr string, s settings) process {
			d := need(open(addr))
			return &leaseholdProcess{need(leasehold.New(d, append(slices.Clip(opts), leasehold.WithTTL(s.ttl))...)), d}
		}}
}

type leaseholdProcess struct {
	client *leasehold.Client
	store  driver.Driver
}

func (p *leaseholdProcess) Lock(ctx context.Context, key string) (held, error) {
	lease, err := p.client.Mutex(key).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// Read implements [readWriter].
func (p *leaseholdProcess) Read(ctx context.Context, key string) (held, error) {
	return p.client.RWMutex(key).RLock(ctx)
}

// Write implements [readWriter].
func (p *leaseholdProcess) Write(ctx context.Context, key string) (held, error) {
	return p.client.RWMutex(key).Lock(ctx)
}

// Crash takes the lock below the library, so that it is not renewed.
func (p *leaseholdProcess) Crash(ctx context.Context, key string, ttl time.Duration) error {
	_, err := p.store.Acquire(ctx, driver.Request{Key: key, ID: rand.Text(), Owner: "crashed", Since: time.Now(), TTL: ttl})
	return err
}

func (p *leaseholdProcess) Close() { _ = p.client.Close() }
