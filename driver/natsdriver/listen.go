package natsdriver

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

var _ roomdriver.Notifier = (*table)(nil)

// Notify implements [roomdriver.Notifier].
func (b *bucket) Notify(ctx context.Context, messages []roomdriver.Message) error {
	nc, err := b.conn(ctx)
	for _, m := range messages {
		if err == nil {
			err = nc.Publish(b.messages(m.Address), []byte(m.Body))
		}
	}
	return err
}

// messages returns the subject of the messages to an address.
func (b *bucket) messages(address string) string { return "leasehold." + b.cfg.bucket + "." + address }

// Listen implements [roomdriver.Listener].
func (b *bucket) Listen(receive func(body string)) (driver.Subscription, error) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &ear{name: rand.Text(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for ctx.Err() == nil {
			b.listen(ctx, e, receive)
			e.address.Store("")
			timing.Sleep(ctx, again)
		}
	}()
	return e, nil
}

// again is how often a subscription looks whether there is a connection, or another one.
const again = 250 * time.Millisecond

// ear is a subscription.
type ear struct {
	name    string
	address atomic.Value // of a string: the name, or empty without a connection
	cancel  context.CancelFunc
	done    chan struct{}
}

// listen receives messages until the connection is closed, which subscribes again by itself
// after a loss.
func (b *bucket) listen(ctx context.Context, e *ear, receive func(body string)) {
	try, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	nc, err := b.conn(try)
	if err != nil {
		return
	}
	messages := make(chan *nats.Msg, 1000)
	for _, address := range []string{e.name, roomdriver.Everybody} {
		sub, err := nc.ChanSubscribe(b.messages(address), messages)
		if err != nil {
			return
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	e.address.Store(e.name)
	receive("") // there may have been another connection before
	seen := nc.Stats().Reconnects
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for !nc.IsClosed() {
		select {
		case m := <-messages:
			receive(string(m.Data))
		case <-ticker.C:
			if n := nc.Stats().Reconnects; n != seen {
				seen = n
				receive("")
			}
		case <-ctx.Done():
			return
		}
	}
}

// Address implements [driver.Subscription].
func (e *ear) Address() string {
	address, _ := e.address.Load().(string)
	return address
}

// Close implements [driver.Subscription].
func (e *ear) Close() error {
	e.cancel()
	<-e.done
	return nil
}
