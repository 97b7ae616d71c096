package etcddriver

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// stay is for how long messages stay in etcd: a watch delivers them at once.
const stay = time.Minute

// mail has the lease of messages, which many of them share.
type mail struct {
	sync.Mutex
	lease clientv3.LeaseID
	until time.Time
}

// Notify implements [roomdriver.Notifier]. The key of an address has the last message.
func (t *table) Notify(ctx context.Context, list []roomdriver.Message) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	client, err := t.connect(ctx)
	if err != nil {
		return err
	}
	lease, err := t.mail.postage(ctx, client)
	for _, m := range list {
		if err == nil {
			_, err = client.Put(ctx, t.prefix+messages+m.Address, m.Body, clientv3.WithLease(lease))
		}
	}
	if err != nil { // the lease may be gone
		t.mail.Lock()
		defer t.mail.Unlock()
		t.mail.until = time.Time{}
	}
	return err
}

// postage returns a lease that messages can have.
func (m *mail) postage(ctx context.Context, client *clientv3.Client) (clientv3.LeaseID, error) {
	m.Lock()
	defer m.Unlock()
	if now := time.Now(); now.After(m.until) {
		lease, err := client.Grant(ctx, int64(stay/time.Second))
		if err != nil {
			return clientv3.NoLease, err
		}
		m.lease, m.until = lease.ID, now.Add(stay/2)
	}
	return m.lease, nil
}

// listener receives messages by two watches: for its address, and for everybody.
type listener struct {
	address string
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// Address implements [driver.Subscription].
func (l *listener) Address() string { return l.address }

// Close implements [driver.Subscription].
func (l *listener) Close() error {
	l.cancel()
	l.work.Wait()
	return nil
}

// Listen implements [roomdriver.Listener]. The client goes on after a connection was lost, with the
// message after the last one.
func (t *table) Listen(receive func(body string)) (driver.Subscription, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{address: rand.Text(), cancel: cancel}
	l.work.Go(func() {
		for ctx.Err() == nil {
			if client, err := t.connect(ctx); err == nil {
				t.listen(ctx, client, l.address, receive)
			}
			receive("") // messages may have been lost
			timing.Sleep(ctx, 500*time.Millisecond)
		}
	})
	return l, nil
}

// listen passes messages on until a watch ends: with ctx, or because it lost messages.
func (t *table) listen(ctx context.Context, client *clientv3.Client, address string, receive func(body string)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch := func(name string) clientv3.WatchChan {
		return client.Watch(ctx, t.prefix+messages+name, clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	}
	own, all := watch(address), watch(roomdriver.Everybody)
	for {
		var r clientv3.WatchResponse
		var ok bool
		select {
		case r, ok = <-own:
		case r, ok = <-all:
		}
		if !ok || r.Err() != nil {
			return
		}
		if r.Created {
			receive("") // messages before this one may have been missed
		}
		for _, event := range r.Events {
			receive(string(event.Kv.Value))
		}
	}
}
