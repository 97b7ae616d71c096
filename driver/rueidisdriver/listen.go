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
func (s *adapter) Listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	if s.timeout <= redisroom.MaxSilence {
		return s.listen(ctx, channels, up, message)
	}
	ears := newAdapter(s.asked, redisroom.MaxSilence)
	defer ears.Close()
	return ears.listen(ctx, channels, up, message)
}

func (s *adapter) listen(ctx context.Context, channels []string, up func(), message func(string)) error {
	client, err := s.connectedClient(ctx)
	if err != nil {
		return err
	}
	own, shared := channels[0], channels[1:]
	s.listening.add(shared)
	var left sync.Once
	leave := func(unsubscribe func(unheard []string)) {
		left.Do(func() { s.listening.remove(shared, unsubscribe) })
	}
	defer leave(func([]string) {}) // with the connection
	// Subscriptions share a connection. Its reader notifies all subscribers of a channel
	// whenever another subscribes to it, and waits for no handler of a message.
	var hearing, confirming sync.Mutex
	var told sync.WaitGroup
	defer told.Wait()
	missing := make(map[string]bool, len(channels))
	for _, c := range channels {
		missing[c] = true
	}
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		confirming.Lock()
		defer confirming.Unlock()
		if sub.Kind != "subscribe" || !missing[sub.Channel] {
			return
		}
		if delete(missing, sub.Channel); len(missing) == 0 {
			told.Go(func() {
				hearing.Lock()
				defer hearing.Unlock()
				up()
			})
		}
	})
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, c rueidis.CommandClient) error {
		if ctx.Err() != nil { // else the connection is lost
			try := s.conns.BeginTimed(context.WithoutCancel(ctx), unsubscribing)
			defer try.End()
			leave(func(unheard []string) {
				// One command: a second would not be sent if the server is slow.
				c.Do(try, c.B().Unsubscribe().Channel(append(unheard, own)...).Build())
			})
		}
		return err
	})
	err = client.Receive(hooked, client.B().Subscribe().Channel(channels...).Build(), func(m rueidis.PubSubMessage) {
		hearing.Lock()
		defer hearing.Unlock()
		message(m.Message)
	})
	return s.failure(ctx, err)
}

// listenerCounts counts the calls that listen to channels of a connection: an
// UNSUBSCRIBE ends all that listen to its channel, so the last of them sends it.
type listenerCounts struct {
	mu    sync.Mutex
	calls map[string]int
}

// add counts one more call. It waits while another call unsubscribes, so that its own
// subscription stays. If the server takes longer than unsubscribing, that ends the
// subscription nevertheless, and the caller subscribes again.
func (l *listenerCounts) add(channels []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[string]int)
	}
	for _, c := range channels {
		l.calls[c]++
	}
}

// remove counts one call less, and calls unsubscribe with the channels that no other call
// uses.
func (l *listenerCounts) remove(channels []string, unsubscribe func(unheard []string)) {
	l.mu.Lock()
	var unheard []string
	for _, c := range channels {
		if l.calls[c]--; l.calls[c] == 0 {
			delete(l.calls, c)
			unheard = append(unheard, c)
		}
	}
	if len(unheard) == 0 {
		l.mu.Unlock() // many may leave at once, and the server may hang
		unsubscribe(nil)
		return
	}
	defer l.mu.Unlock()
	unsubscribe(unheard)
}
