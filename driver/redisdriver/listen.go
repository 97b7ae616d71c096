package redisdriver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// errSilent is the cause of a subscription's end that answers no ping.
var errSilent = errors.New("the subscription has gone silent")

func (c *adapter) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	ctx, forsake := interrupt.Family(ctx)
	defer forsake()
	ctx, giveUp := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer giveUp(nil)
	sub := c.single.Subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	if err := sub.Subscribe(ctx, channels...); err != nil {
		return c.failure(ctx, err)
	}

	var heard atomic.Int64 // how often the server was
	watch.Go(func() { c.watchSilence(ctx, sub, &heard, giveUp) })
	for confirmed := 0; ; {
		msg, err := sub.Receive(ctx)
		if err != nil {
			return c.failure(ctx, err)
		}
		heard.Add(1)
		switch msg := msg.(type) {
		case *redis.Subscription:
			if confirmed++; confirmed == len(channels) {
				up()
			}
		case *redis.Message:
			message(msg.Payload)
		}
	}
}

// watchSilence pings the server over the subscription from time to time until ctx ends, and gives
// up if no answer has arrived since the last ping.
func (c *adapter) watchSilence(ctx context.Context, sub *redis.PubSub, heard *atomic.Int64, giveUp func(error)) {
	tick := time.NewTicker(min(c.timeout, redisroom.MaxSilence))
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := heard.Load()
		if now == last || sub.Ping(ctx) != nil {
			giveUp(errSilent)
			return
		}
		last = now
	}
}
