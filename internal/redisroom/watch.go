package redisroom

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Bounds of the pause before a lost subscription is tried again. Without a subscription,
// waiters poll, and breaks are noticed at renewals.
const (
	minResubscribe = 50 * time.Millisecond
	maxResubscribe = time.Second
	maxRefused     = 10 * time.Second // where a right is missing, for instance
)

type subscription struct {
	prefix  string
	channel string // of its own
	up      atomic.Bool
	cancel  context.CancelFunc
	done    chan struct{} // closed after the last delivery
}

// Watch implements [driver.Watcher]. It does not wait for the subscription: the address
// is empty until the server has confirmed it.
func (s *Store) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, driver.ErrClosed
	}
	ctx, cancel := context.WithCancel(s.ctx)
	sub := &subscription{
		prefix:  s.prefix,
		channel: channelPrefix(s.prefix) + rand.Text(),
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	// A library that shares connections lets a subscription slow them down:
	// renewals do not mind.
	s.listening.Go(func() { sub.run(ctx, s.renew, s.acks.hints(f)) })
	return sub, nil
}

// broadcastChannel returns the channel of a prefix that every subscription listens to. It differs
// from all other names, whose random part has upper-case letters.
func broadcastChannel(prefix string) string { return channelPrefix(prefix) + "all" }

// channelPrefix returns the beginning of all channel names of a prefix, which the rights for the
// prefix allow.
func channelPrefix(prefix string) string {
	address := func(r rune) rune {
		if strings.ContainsRune(unaddressable, r) {
			return '_'
		}
		return r
	}
	return strings.Map(address, prefix) + "wake:"
}

// Address implements [driver.Subscription].
func (s *subscription) Address() string {
	if s.up.Load() {
		return s.channel
	}
	return ""
}

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// run keeps the subscription up until ctx ends.
func (s *subscription) run(ctx context.Context, client Client, f func(driver.Hint)) {
	defer close(s.done)
	defer s.cancel()
	pause := minResubscribe
	for ctx.Err() == nil {
		err := client.Listen(ctx, []string{s.channel, broadcastChannel(s.prefix)}, func() {
			pause = minResubscribe
			s.up.Store(true)
			f(driver.Hint{Kind: driver.HintResync})
		}, func(text string) {
			if hint, ok := parseHint(s.prefix, text); ok {
				f(hint)
			}
		})
		s.up.Store(false)
		most := maxResubscribe
		if errors.Is(classify(err), driver.ErrPermanent) {
			most = maxRefused
		}
		timing.Sleep(ctx, pause)
		pause = min(2*pause, most)
	}
}
