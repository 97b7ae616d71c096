package rueidisdriver

import (
	"context"
	"sync"

	"github.com/redis/rueidis"
)

// Listen implements [redisroom.Client]. rueidis itself finds out about a
// connection that has gone silent.
func (s *seam) Listen(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	// The confirmation comes on the goroutine that reads the connection, the
	// messages on this one.
	var mu sync.Mutex
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		mu.Lock()
		defer mu.Unlock()
		if sub.Kind == "subscribe" {
			up()
		}
	})
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, c rueidis.CommandClient) error {
		if ctx.Err() != nil { // else the connection is lost
			try := s.begin(context.WithoutCancel(ctx))
			defer try.End()
			c.Do(try, c.B().Unsubscribe().Channel(channel).Build())
		}
		return err
	})
	err = client.Receive(hooked, client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		mu.Lock()
		defer mu.Unlock()
		message(m.Message)
	})
	return s.failure(ctx, err)
}
