package rueidisdriver

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// unsubscribing bounds the unsubscription at the server, which may hang.
const unsubscribing = 100 * time.Millisecond

// Listen implements [redisroom.Client]. rueidis notices a silent connection after the
// time that a request may take. If that is long, the subscription has a client of its own
// with a shorter one.
func (s *adapter) Listen(ctx context.Context, channel string, up func(), message func(string)) error {
	if s.timeout <= redisroom.MaxSilence {
		return s.listen(ctx, channel, up, message)
	}
	ears := newAdapter(s.asked, redisroom.MaxSilence)
	defer ears.Close()
	return ears.listen(ctx, channel, up, message)
}

func (s *adapter) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := s.connectedClient(ctx)
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
			try := s.conns.BeginTimed(context.WithoutCancel(ctx), unsubscribing)
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
