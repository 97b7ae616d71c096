package natsdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

var _ roomdriver.Notifier = (*bucket)(nil)

// Notify implements [roomdriver.Notifier].
func (b *bucket) Notify(ctx context.Context, messages []roomdriver.Message) error {
	nc, err := b.conn(ctx)
	for _, m := range messages {
		if err == nil {
			err = nc.Publish(b.address(m.Address), []byte(m.Body))
		}
	}
	return err
}

// address returns the subject of messages.
func (b *bucket) address(name string) string { return "leasehold." + b.cfg.bucket + "." + name }

// Listen implements [roomdriver.Listener].
func (b *bucket) Listen(receive func(body string)) (driver.Subscription, error) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &ear{name: rand.Text(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for pause := again; ctx.Err() == nil; pause = min(2*pause, 20*again) { // a server may lock out a wrong password
			b.listen(ctx, e, receive)
			e.connected.Store(false)
			timing.Sleep(ctx, pause)
		}
	}()
	return e, nil
}

// again is how often a subscription looks whether there is a connection, or another one.
const again = 250 * time.Millisecond

// listen receives messages until the connection is closed, which subscribes again by itself
// after a loss.
func (b *bucket) listen(ctx context.Context, e *ear, receive func(body string)) {
	nc, err := b.conn(ctx)
	messages := make(chan *nats.Msg, 1000)
	for _, name := range []string{e.name, roomdriver.Everybody} {
		if err != nil {
			return
		}
		var sub *nats.Subscription
		sub, err = nc.ChanSubscribe(b.address(name), messages)
		defer func() { _ = sub.Unsubscribe() }()
	}
	if err == nil {
		err = b.refused(ctx, nc)
	}
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for seen := uint64(1 << 63); err == nil && !nc.IsClosed(); {
		if n := nc.Stats().Reconnects; n != seen { // messages may have been lost
			seen = n
			e.connected.Store(true)
			receive("")
		}
		select {
		case m := <-messages:
			receive(string(m.Data))
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// refused returns an error if the user may not subscribe. The server reports that to the connection only.
func (b *bucket) refused(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+b.address("")) {
		return err
	}
	return nil
}

// ear is a subscription.
type ear struct {
	name      string
	connected atomic.Bool
	cancel    context.CancelFunc
	done      chan struct{}
}

// Address implements [driver.Subscription].
func (e *ear) Address() string {
	if !e.connected.Load() {
		return ""
	}
	return e.name
}

// Close implements [driver.Subscription].
func (e *ear) Close() error {
	e.cancel()
	<-e.done
	return nil
}
