package redisdriver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// errSilent is why a subscription is given up that answers no ping.
var errSilent = errors.New("the subscription has gone silent")

// Listen implements [redisroom.Client].
func (c *seam) Listen(ctx context.Context, channel string, up func(), message func(string)) error {
	err := c.listen(ctx, channel, up, message)
	if c.cluster != nil {
		c.cluster.ReloadState(ctx) // the node may be gone for good
	}
	return err
}

func (c *seam) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	sub := c.subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	if err := sub.Subscribe(ctx, channel); err != nil {
		return c.failure(ctx, err)
	}

	var heard atomic.Int64 // how often the server was
	silent := c.watchSilence(ctx, sub, &heard)
	defer silent.end()
	for {
		msg, err := sub.Receive(ctx)
		if err != nil {
			return errors.Join(c.failure(ctx, err), silent.cause())
		}
		heard.Add(1)
		switch msg := msg.(type) {
		case *redis.Subscription:
			up()
		case *redis.Message:
			message(msg.Payload)
		}
	}
}

func (c *seam) subscribe(ctx context.Context) *redis.PubSub {
	if c.cluster != nil {
		return c.cluster.Subscribe(ctx)
	}
	return c.single.Subscribe(ctx)
}

// watch closes a subscription that has gone silent.
type watch struct {
	quit, done chan struct{}
	err        error // set before done is closed
}

// watchSilence pings the server over the subscription once in a while, and
// closes it if nothing was heard since the last ping.
func (c *seam) watchSilence(ctx context.Context, sub *redis.PubSub, heard *atomic.Int64) *watch {
	w := &watch{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(c.timeout)
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

// end ends the watch and waits for it.
func (w *watch) end() {
	close(w.quit)
	<-w.done
}

// cause returns why the watch closed the subscription, if it did.
func (w *watch) cause() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}
