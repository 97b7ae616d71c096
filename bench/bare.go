package main

import (
	"context"
	"errors"
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
	close  func() error
}

type script func(ctx context.Context, keys, args []string) (int64, error)

const deleteIfMine = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

var (
	// errBusy is the answer of a bare client, which does not wait.
	errBusy = errors.New("busy")
	// errLost is the answer of a release that came too late.
	errLost = errors.New("lost")
)

func bareGoRedis(addr string) (*bareClient, error) {
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
		close: func() error { return errors.Join(unsubscribe(), client.Close()) },
	}, nil
}

func bareRueidis(addr string) (*bareClient, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, err
	}
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
		close: func() error {
			unsubscribe()
			client.Close()
			return nil
		},
	}, nil
}
