package redisdriver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/interrupt"
	"github.com/leasehold-go/leasehold/internal/oneline"
	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// errSilent is the cause of a subscription's end that answers no ping.
var errSilent = errors.New("the subscription has gone silent")

// Listen implements [redisroom.Client].
func (c *adapter) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	ctx, forsake := interrupt.Family(ctx)
	defer forsake()
	sub := c.single.Subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	if err := sub.Subscribe(ctx, channels...); err != nil {
		return c.failure(ctx, err)
	}

	var heard atomic.Int64 // how often the server was
	silent := c.watchSilence(ctx, sub, &heard)
	defer silent.close()
	for confirmed := 0; ; {
		msg, err := sub.Receive(ctx)
		if err != nil {
			return oneline.Join(c.failure(ctx, err), silent.cause())
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

// silenceWatch closes a subscription that has gone silent.
type silenceWatch struct {
	quit, done chan struct{}
	err        error // set before done is closed
}

// watchSilence pings the server over the subscription from time to time, and closes it if
// no answer has arrived since the last ping.
func (c *adapter) watchSilence(ctx context.Context, sub *redis.PubSub, heard *atomic.Int64) *silenceWatch {
	w := &silenceWatch{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(min(c.timeout, redisroom.MaxSilence))
		defer tick.Stop()
		for last := int64(-1); ; {
			select {
			case <-w.quit:
				return
			case <-tick.C:
			}
			now := heard.Load()
			if now == last || sub.Ping(ctx) != nil {
				w.err = errSilent
				_ = sub.Close()
				return
			}
			last = now
		}
	}()
	return w
}

// close ends the watch and waits for it.
func (w *silenceWatch) close() {
	close(w.quit)
	<-w.done
}

// cause returns why the watch closed the subscription, or nil if it did not.
func (w *silenceWatch) cause() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}
